#include "engine/runner/sampler.h"

#include <algorithm>
#include <utility>

#include "engine/options/request_check.h"
#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

/// A value for each row of logits that the step draws from, and `rest` for those that pad it.
template <class T, class Value>
ConstTensorView column(StagedArrays& arrays, std::vector<T>& values, const StepSchedule& step,
                       int64_t num_rows, T rest, const Value& value) {
  values.clear();
  for (const RowStep& row : step.rows) {
    for (int64_t i = 0; i < row.num_logits; ++i) values.push_back(value(*row.sequence, i));
  }
  values.resize(static_cast<size_t>(num_rows), rest);
  return arrays.add(values);
}

/// An option of the request.
template <class T>
auto option(T SamplingOptions::*field) {
  return [=](const Sequence& sequence, int64_t /*i*/) { return sequence.request.sampling.*field; };
}

/// Of the results of a step, in 4 bytes each.
int64_t max_words(int64_t max_rows) {
  return 2 * max_rows + (max_rows + kMaxScored) * (1 + 2 * kMaxTopLogprobs);
}

int64_t draw_step(const Sequence& sequence, int64_t i) {
  return std::ssize(sequence.answer.completion.token_ids) + sequence.cache.num_pending + i;
}

}  // namespace

Sampler::Sampler(Device device, int64_t max_rows)
    : max_rows_(max_rows),
      results_(device, DType::kInt32, {max_words(max_rows)}),
      mails_{{{StagingBytes(device, results_.num_bytes()), DeviceEvent(device)},
              {StagingBytes(device, results_.num_bytes()), DeviceEvent(device)}}} {
  const auto num_rows = static_cast<size_t>(std::max(max_rows, kMaxScored));
  floats_.reserve(num_rows);
  ints_.reserve(num_rows);
  longs_.reserve(num_rows);
  for (Mail& mail : mails_) mail.reports.reserve(static_cast<size_t>(max_rows + kMaxScored));
}

size_t Sampler::staged_bytes(int64_t max_rows) {
  return 4 * StagedArrays::bytes_for<float>(max_rows) +
         2 * StagedArrays::bytes_for<int64_t>(max_rows) +
         StagedArrays::bytes_for<int32_t>(kMaxScored);
}

void Sampler::stage(StagedArrays& arrays, const StepSchedule& step, int64_t num_rows) {
  const auto add = [&](auto& values, auto rest, const auto& value) {
    return column(arrays, values, step, num_rows, rest, value);
  };
  table_ = {.temperature = add(floats_, 0.0f, option(&SamplingOptions::temperature)),
            .top_k = add(ints_, 0, option(&SamplingOptions::top_k)),
            .top_p = add(floats_, 1.0f, option(&SamplingOptions::top_p)),
            .min_p = add(floats_, 0.0f, option(&SamplingOptions::min_p)),
            .seed = add(longs_, int64_t{0}, option(&SamplingOptions::seed)),
            .step = add(longs_, int64_t{0}, draw_step)};
  if (step.num_scored == 0) return;
  ints_.clear();
  for (const RowStep& row : step.rows) {
    const auto next = row.sequence->tokens.begin() + row.first + 1;
    if (row.num_scored > 0) ints_.insert(ints_.end(), next, next + row.num_scored);
  }
  scored_tokens_ = arrays.add(ints_);
}

TensorView Sampler::words(DType dtype, int64_t begin, std::initializer_list<int64_t> shape) const {
  static_assert(sizeof(int32_t) == sizeof(float));
  return {results_.view().raw() + begin * int64_t{sizeof(int32_t)}, dtype, results_.view().device(),
          shape};
}

void Sampler::draw(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits) {
  next_mail().reports.clear();
  const int64_t num_rows = table_.seed.size(0);
  next_mail().count = static_cast<size_t>(num_rows);
  if (num_rows > 0) {
    const TensorView requested = logits.rows.narrow(0, 0, step.num_logits);  // without padding
    const bool adjusts = adjusted_.adjust(ctx, step, requested);
    const TensorView masked = masked_.mask(ctx, step, requested);
    const bool masks = masked.raw() != requested.raw();
    // What pads the step has no request, and so no mask.
    const int64_t num_masked = masks ? step.num_logits : 0;
    draw_rows(ctx, 0, num_masked, {masked, logits.widths});
    draw_rows(ctx, num_masked, num_rows, logits);
    if (adjusts) adjusted_.restore(ctx, requested);
    if (adjusts || masks) score_adjusted(ctx, step, logits);
  }
  compute_reports(ctx, step, logits);
}

/// Rows [first, last), neighbours of one width in one call.
void Sampler::draw_rows(const ExecContext& ctx, int64_t first, int64_t last,
                        const StepLogits& logits) {
  for (int64_t begin = first, end = first; begin < last; begin = end) {
    const int64_t width = logits.widths(begin);
    while (end < last && logits.widths(end) == width) ++end;
    const auto part = [&](const auto& column) { return column.narrow(0, begin, end - begin); };
    sample(ctx, part(drawn()), part(logprobs()), logits.of(begin, end - begin),
           {.temperature = part(table_.temperature),
            .top_k = part(table_.top_k),
            .top_p = part(table_.top_p),
            .min_p = part(table_.min_p),
            .seed = part(table_.seed),
            .step = part(table_.step)});
  }
}

/// Log-probabilities are the model's own. Neighbours of one width are scored in one call where any
/// of them needs it: the others get the bits that they have.
void Sampler::score_adjusted(const ExecContext& ctx, const StepSchedule& step,
                             const StepLogits& logits) {
  int64_t begin = 0, end = 0;
  bool needs = false;
  const auto score = [&] {
    const int64_t count = end - begin;
    if (!std::exchange(needs, false)) return;
    token_logprobs(ctx, logprobs().narrow(0, begin, count), {}, {}, logits.of(begin, count),
                   drawn().narrow(0, begin, count));
  };
  for (const RowStep& row : step.rows) {
    if (row.num_logits == 0) continue;
    if (logits.widths(row.logits_begin) != logits.widths(begin)) {
      score();
      begin = row.logits_begin;
    }
    end = row.logits_begin + row.num_logits;
    needs = needs || row.sequence->adjustment != nullptr || row.sequence->mask != nullptr;
  }
  score();
}

void Sampler::compute_reports(const ExecContext& ctx, const StepSchedule& step,
                              const StepLogits& logits) {
  std::vector<Report>& reports = next_mail().reports;
  int64_t scored = 0, begin = 2 * max_rows_;
  const auto add = [&](const Report& report, int64_t first, const ConstTensorView& tokens) {
    compute_report(ctx, report, logits.of(first, report.count), tokens);
    reports.push_back(report);
    begin = report.end();
  };
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const RowStep& row = step.rows[i];
    const int64_t k = row.is_alive() ? row.sequence->request.top_logprobs : 0;
    if (row.num_scored > 0) {
      add({i, row.num_scored, k, true, begin}, step.num_logits + scored,
          scored_tokens_.narrow(0, scored, row.num_scored));
      scored += row.num_scored;
    }
    if (row.num_logits > 0 && k > 0 && row.sequence->request.draws) {
      add({i, row.num_logits, k, false, begin}, row.logits_begin,
          drawn().narrow(0, row.logits_begin, row.num_logits));
    }
  }
}

void Sampler::compute_report(const ExecContext& ctx, const Report& report, const TensorView& logits,
                             const ConstTensorView& tokens) {
  const auto [row, count, k, is_of_prompt, begin] = report;
  const auto tops = [&](DType dtype, int64_t at) {
    return k == 0 ? TensorView() : words(dtype, at, {count, k});
  };
  token_logprobs(ctx, words(DType::kFloat32, begin, {count}), tops(DType::kInt32, begin + count),
                 tops(DType::kFloat32, begin + count * (1 + k)), logits, tokens);
}

void Sampler::send(const ExecContext& ctx) {
  Mail& mail = next_mail();
  ++next_sent_;
  const int64_t num_words = mail.reports.empty() ? max_rows_ + static_cast<int64_t>(mail.count)
                                                 : mail.reports.back().end();
  begin_word_copy_to_host(ctx,
                          {mail.memory.get(), static_cast<size_t>(num_words) * sizeof(int32_t)},
                          results_.view().raw());
  mail.sent.record(ctx);
}

StepTokens Sampler::receive(const StepSchedule& step) {
  const Mail& mail = mails_[next_received_++ % mails_.size()];
  mail.sent.wait();
  const std::byte* const begin = mail.memory.get();
  const std::byte* const logprobs = begin + static_cast<size_t>(max_rows_) * sizeof(int32_t);
  const StepTokens tokens{{reinterpret_cast<const int32_t*>(begin), mail.count},
                          {reinterpret_cast<const float*>(logprobs), mail.count}};
  for (const Report& report : mail.reports) {
    const RowStep& row = step.rows[report.row];
    if (!row.is_alive()) continue;
    const int64_t num_taken = report.is_of_prompt ? report.count : row.num_taken(tokens.of(row));
    store(report, row, num_taken, begin + report.begin * int64_t{sizeof(int32_t)});
  }
  return tokens;
}

/// The first num_taken of them, in the completion of the request.
void Sampler::store(const Report& report, const RowStep& row, int64_t num_taken,
                    const std::byte* from) {
  Completion& to = row.sequence->answer.completion;
  const auto count = static_cast<size_t>(report.count), taken = static_cast<size_t>(num_taken);
  const auto k = static_cast<size_t>(report.k);
  const std::span own(reinterpret_cast<const float*>(from), taken);
  const std::span top_ids(reinterpret_cast<const int32_t*>(from) + count, taken * k);
  const std::span tops(reinterpret_cast<const float*>(from) + count * (1 + k), taken * k);
  if (report.is_of_prompt) {
    const int64_t next = row.first + 1;
    std::ranges::copy(own, to.prompt_logprobs.begin() + next);
    std::ranges::copy(top_ids, to.prompt_top_token_ids.begin() + next * report.k);
    std::ranges::copy(tops, to.prompt_top_logprobs.begin() + next * report.k);
  } else {
    to.top_token_ids.insert(to.top_token_ids.end(), top_ids.begin(), top_ids.end());
    to.top_logprobs.insert(to.top_logprobs.end(), tops.begin(), tops.end());
  }
}

}  // namespace heddle
