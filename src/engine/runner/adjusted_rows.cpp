#include "engine/runner/adjusted_rows.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/rules/row_adjustment.h"

namespace heddle {

void AdjustedRows::reserve(Device device, int64_t num_rows, int64_t num_entries) {
  if (num_rows <= num_rows_ && num_entries <= num_entries_) return;
  num_rows = std::max(num_rows, num_rows_);
  // Twice as many as before at least, so that requests that start one by one do not each move it.
  num_entries =
      num_entries <= num_entries_ ? num_entries_ : std::max(num_entries, 2 * num_entries_);
  ints_.reserve(static_cast<size_t>(std::max(num_rows + 1, num_entries)));
  floats_.reserve(ints_.capacity());
  StagedArrays staged(device, StagedArrays::bytes_for<int32_t>(num_rows + 1) +
                                  3 * StagedArrays::bytes_for<float>(num_rows) +
                                  4 * StagedArrays::bytes_for<int32_t>(num_entries));
  saved_ = DeviceTensor(device, DType::kFloat32, {num_entries});
  staged_ = std::move(staged);
  num_rows_ = num_rows;
  num_entries_ = num_entries;
}

bool AdjustedRows::adjust(const ExecContext& ctx, const StepSchedule& step, TensorView logits) {
  const auto has_any = [](const RowStep& row) {
    return row.num_logits > 0 && row.sequence->adjustment != nullptr;
  };
  if (std::ranges::none_of(step.rows, has_any)) return false;
  staged_.clear();
  ints_.assign(1, 0);
  for (const RowStep& row : step.rows) {
    if (has_any(row)) row.sequence->adjustment->prepare(row.sequence->answer.completion.token_ids);
    const size_t added = has_any(row) ? row.sequence->adjustment->token_ids().size() : 0;
    if (row.num_logits > 0) ints_.push_back(ints_.back() + static_cast<int32_t>(added));
  }
  const auto entries = [&](auto& values, const auto& column) {
    values.clear();
    for (const RowStep& row : step.rows) {
      if (!has_any(row)) continue;
      const auto own = std::invoke(column, *row.sequence->adjustment);
      values.insert(values.end(), own.begin(), own.end());
    }
    return staged_.add(values);
  };
  const auto options = [&](float SamplingOptions::*field) {
    floats_.clear();
    for (const RowStep& row : step.rows) {
      if (row.num_logits == 0) continue;
      const RowAdjustment* const own = row.sequence->adjustment.get();
      floats_.push_back((own == nullptr ? SamplingOptions{} : own->sampling()).*field);
    }
    return staged_.add(floats_);
  };
  views_ = {.indptr = staged_.add(ints_),
            .token_ids = entries(ints_, &RowAdjustment::token_ids),
            .prompt_counts = entries(ints_, &RowAdjustment::prompt_counts),
            .output_counts = entries(ints_, &RowAdjustment::output_counts),
            .bias = entries(floats_, &RowAdjustment::bias),
            .repetition = options(&SamplingOptions::repetition_penalty),
            .presence = options(&SamplingOptions::presence_penalty),
            .frequency = options(&SamplingOptions::frequency_penalty)};
  staged_.copy(ctx);
  adjust_logits(ctx, logits, saved_.rows(views_.bias.size(0)), views_);
  return true;
}

void AdjustedRows::restore(const ExecContext& ctx, TensorView logits) {
  restore_logits(ctx, logits, saved_.rows(views_.bias.size(0)), views_);
}

}  // namespace heddle
