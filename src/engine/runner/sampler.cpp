#include "engine/runner/sampler.h"

#include <algorithm>

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

int64_t draw_step(const Sequence& sequence, int64_t i) {
  return std::ssize(sequence.answer.completion.token_ids) + sequence.cache.num_pending + i;
}

}  // namespace

Sampler::Sampler(Device device, int64_t max_rows)
    : max_rows_(max_rows),
      drawn_(device, DType::kInt32, {2 * max_rows}),
      mails_{{{StagingBytes(device, drawn_.num_bytes()), DeviceEvent(device)},
              {StagingBytes(device, drawn_.num_bytes()), DeviceEvent(device)}}},
      reported_(device, DType::kFloat32, {kMaxScored}),
      top_ids_(device, DType::kInt32, {kMaxScored * kMaxTopLogprobs}),
      tops_(device, DType::kFloat32, {kMaxScored * kMaxTopLogprobs}) {
  const auto num_rows = static_cast<size_t>(std::max(max_rows, kMaxScored));
  floats_.reserve(num_rows);
  ints_.reserve(num_rows);
  longs_.reserve(num_rows);
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

TensorView Sampler::logprobs() const {
  std::byte* const begin = drawn_.view().raw() + static_cast<size_t>(max_rows_) * sizeof(int32_t);
  return {begin, DType::kFloat32, drawn_.view().device(), {max_rows_}};
}

void Sampler::draw(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits) {
  const int64_t num_rows = table_.seed.size(0);
  if (num_rows == 0) return;
  const TensorView all = logits.rows.narrow(0, 0, num_rows);
  const bool adjusts = adjusted_.adjust(ctx, step, all);
  // Neighbours of one width are drawn in one call.
  for (int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
    const int64_t width = logits.widths(begin);
    while (end < num_rows && logits.widths(end) == width) ++end;
    const auto part = [&](const auto& column) { return column.narrow(0, begin, end - begin); };
    sample(ctx, part(drawn()), part(logprobs()), logits.of(begin, end - begin),
           {.temperature = part(table_.temperature),
            .top_k = part(table_.top_k),
            .top_p = part(table_.top_p),
            .min_p = part(table_.min_p),
            .seed = part(table_.seed),
            .step = part(table_.step)});
  }
  if (!adjusts) return;
  // Log-probabilities are the model's own.
  adjusted_.restore(ctx, all);
  for (const RowStep& row : step.rows) {
    const int64_t begin = row.logits_begin, count = row.num_logits;
    if (row.sequence->adjustment == nullptr || count == 0) continue;
    token_logprobs(ctx, logprobs().narrow(0, begin, count), {}, {}, logits.of(begin, count),
                   drawn().narrow(0, begin, count));
  }
}

void Sampler::send(const ExecContext& ctx) {
  Mail& mail = mails_[next_sent_++ % mails_.size()];
  mail.count = static_cast<size_t>(table_.seed.size(0));
  const size_t bytes =
      static_cast<size_t>(max_rows_) * sizeof(int32_t) + mail.count * sizeof(float);
  begin_copy_to_host(ctx, {mail.memory.get(), bytes}, drawn_.view().raw());
  mail.sent.record(ctx);
}

StepTokens Sampler::receive() {
  const Mail& mail = mails_[next_received_++ % mails_.size()];
  mail.sent.wait();
  const std::byte* const begin = mail.memory.get();
  const std::byte* const logprobs = begin + static_cast<size_t>(max_rows_) * sizeof(int32_t);
  return {{reinterpret_cast<const int32_t*>(begin), mail.count},
          {reinterpret_cast<const float*>(logprobs), mail.count}};
}

void Sampler::report(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits) {
  int64_t scored = 0;
  for (const RowStep& row : step.rows) {
    const RowRequest& request = row.sequence->request;
    Completion& to = row.sequence->answer.completion;
    const auto k = static_cast<size_t>(request.top_logprobs);
    if (row.num_scored > 0) {
      const auto next = static_cast<size_t>(row.first + 1);
      const auto count = static_cast<size_t>(row.num_scored);
      report(ctx, logits.of(step.num_logits + scored, row.num_scored),
             scored_tokens_.narrow(0, scored, row.num_scored),
             {.own = std::span(to.prompt_logprobs).subspan(next, count),
              .top_ids = std::span(to.prompt_top_token_ids).subspan(next * k, count * k),
              .tops = std::span(to.prompt_top_logprobs).subspan(next * k, count * k)});
      scored += row.num_scored;
    }
    if (row.num_logits > 0 && k > 0 && request.draws) {
      const size_t count = static_cast<size_t>(row.num_logits) * k;
      to.top_token_ids.resize(to.top_token_ids.size() + count);
      to.top_logprobs.resize(to.top_logprobs.size() + count);
      report(ctx, logits.of(row.logits_begin, row.num_logits),
             drawn().narrow(0, row.logits_begin, row.num_logits),
             {.own = {},
              .top_ids = std::span(to.top_token_ids).last(count),
              .tops = std::span(to.top_logprobs).last(count)});
    }
  }
}

/// Of the tokens, and of the most likely ones in their places.
void Sampler::report(const ExecContext& ctx, const TensorView& logits,
                     const ConstTensorView& tokens, const Reported& to) {
  const int64_t count = tokens.size(0), k = std::ssize(to.top_ids) / count;
  TensorView ids, tops;
  if (k > 0) {
    ids = {top_ids_.view().raw(), DType::kInt32, ctx.device, {count, k}};
    tops = {tops_.view().raw(), DType::kFloat32, ctx.device, {count, k}};
  }
  token_logprobs(ctx, reported_.rows(count), ids, tops, logits, tokens);
  if (!to.own.empty()) copy_to_host(ctx, to.own, reported_.rows(count));
  if (k == 0) return;
  copy_to_host(ctx, to.top_ids, ids);
  copy_to_host(ctx, to.tops, tops);
}

}  // namespace heddle
