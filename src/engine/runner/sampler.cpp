#include "engine/runner/sampler.h"

#include <algorithm>

#include "engine/options/request_check.h"
#include "engine/rows/scheduler.h"

namespace heddle {

Sampler::Sampler(Device device, int64_t max_rows)
    : max_rows_(max_rows),
      results_(device, max_rows),
      logprobs_(device, DType::kFloat32, {kMaxScored}),
      top_ids_(device, DType::kInt32, {kMaxScored * kMaxTopLogprobs}),
      tops_(device, DType::kFloat32, {kMaxScored * kMaxTopLogprobs}) {
  const auto num_rows = static_cast<size_t>(max_rows);
  for (auto* column : {&columns_.temperature, &columns_.top_p, &columns_.min_p}) {
    column->reserve(num_rows);
  }
  columns_.top_k.reserve(num_rows);
  for (auto* column : {&columns_.seed, &columns_.step}) column->reserve(num_rows);
  scored_.reserve(static_cast<size_t>(kMaxScored));
}

size_t Sampler::staged_bytes(int64_t max_rows) {
  return 4 * StagedArrays::bytes_for<float>(max_rows) +
         2 * StagedArrays::bytes_for<int64_t>(max_rows) +
         StagedArrays::bytes_for<int32_t>(kMaxScored);
}

void Sampler::reserve_adjustments(Device device, int64_t num_entries) {
  adjusted_.reserve(device, max_rows_, num_entries);
}

void Sampler::stage(StagedArrays& arrays, const StepSchedule& step, int64_t num_rows) {
  for (auto* column : {&columns_.temperature, &columns_.top_p, &columns_.min_p}) column->clear();
  columns_.top_k.clear();
  for (auto* column : {&columns_.seed, &columns_.step}) column->clear();
  scored_.clear();
  for (const RowStep& row : step.rows) {
    const Sequence& sequence = *row.sequence;
    const SamplingOptions& options = sequence.request.sampling;
    const int64_t num_drawn =
        std::ssize(sequence.answer.completion.token_ids) + sequence.cache.num_pending;
    for (int64_t i = 0; i < row.num_logits; ++i) {
      columns_.temperature.push_back(options.temperature);
      columns_.top_k.push_back(options.top_k);
      columns_.top_p.push_back(options.top_p);
      columns_.min_p.push_back(options.min_p);
      columns_.seed.push_back(options.seed);
      columns_.step.push_back(num_drawn + i);
    }
    for (int64_t i = 0; i < row.num_scored; ++i) {
      scored_.push_back(sequence.tokens[static_cast<size_t>(row.first + i + 1)]);
    }
  }
  const auto size = static_cast<size_t>(num_rows);
  for (auto* column : {&columns_.temperature, &columns_.min_p}) column->resize(size, 0.0f);
  columns_.top_p.resize(size, 1.0f);
  columns_.top_k.resize(size, 0);
  for (auto* column : {&columns_.seed, &columns_.step}) column->resize(size, 0);
  table_ = {.temperature = arrays.add(columns_.temperature),
            .top_k = arrays.add(columns_.top_k),
            .top_p = arrays.add(columns_.top_p),
            .min_p = arrays.add(columns_.min_p),
            .seed = arrays.add(columns_.seed),
            .step = arrays.add(columns_.step)};
  if (!scored_.empty()) scored_tokens_ = arrays.add(scored_);
}

void Sampler::draw(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits) {
  const int64_t num_rows = table_.seed.size(0);
  if (num_rows == 0) return;
  const TensorView all = logits.rows.narrow(0, 0, num_rows);
  const bool adjusts = adjusted_.adjust(ctx, step, all);
  const TensorView drawn = results_.token_ids(num_rows), logprobs = results_.logprobs(num_rows);
  // Neighbours of one width are drawn in one call.
  for (int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
    const int64_t width = logits.widths(begin);
    while (end < num_rows && logits.widths(end) == width) ++end;
    const auto part = [&](const auto& column) { return column.narrow(0, begin, end - begin); };
    sample(ctx, part(drawn), part(logprobs), logits.of(begin, end - begin),
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
    if (row.sequence->adjustment == nullptr || row.num_logits == 0) continue;
    const auto part = [&](const auto& column) {
      return column.narrow(0, row.logits_begin, row.num_logits);
    };
    token_logprobs(ctx, part(logprobs), {}, {}, logits.of(row.logits_begin, row.num_logits),
                   part(drawn));
  }
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
             results_.token_ids(max_rows_).narrow(0, row.logits_begin, row.num_logits),
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
  const TensorView logprobs = logprobs_.rows(count);
  TensorView ids, tops;
  if (k > 0) {
    ids = {top_ids_.view().raw(), DType::kInt32, ctx.device, {count, k}};
    tops = {tops_.view().raw(), DType::kFloat32, ctx.device, {count, k}};
  }
  token_logprobs(ctx, logprobs, ids, tops, logits, tokens);
  if (!to.own.empty()) copy_to_host(ctx, to.own, logprobs);
  if (k == 0) return;
  copy_to_host(ctx, to.top_ids, ids);
  copy_to_host(ctx, to.tops, tops);
}

}  // namespace heddle
