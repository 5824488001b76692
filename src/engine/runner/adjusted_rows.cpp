#include "engine/runner/adjusted_rows.h"

#include <algorithm>
#include <utility>

#include "engine/rules/row_adjustment.h"

namespace heddle {

void AdjustedRows::reserve(Device device, int64_t num_rows, int64_t num_entries) {
  if (num_rows <= num_rows_ && num_entries <= num_entries_) return;
  num_rows = std::max(num_rows, num_rows_);
  // Twice as many as before at least, so that requests that start one by one do not each move it.
  num_entries =
      num_entries <= num_entries_ ? num_entries_ : std::max(num_entries, 2 * num_entries_);
  indptr_.reserve(static_cast<size_t>(num_rows + 1));
  options_.reserve(static_cast<size_t>(num_rows));
  for (auto* ints : {&token_ids_, &prompt_counts_, &output_counts_}) {
    ints->reserve(static_cast<size_t>(num_entries));
  }
  bias_.reserve(static_cast<size_t>(num_entries));
  StagedArrays staged(device, StagedArrays::bytes_for<int32_t>(num_rows + 1) +
                                  3 * StagedArrays::bytes_for<float>(num_rows) +
                                  4 * StagedArrays::bytes_for<int32_t>(num_entries));
  saved_ = DeviceTensor(device, DType::kFloat32, {num_entries});
  staged_ = std::move(staged);
  num_rows_ = num_rows;
  num_entries_ = num_entries;
}

void AdjustedRows::add(const RowAdjustment& adjustment) {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(token_ids_, adjustment.token_ids());
  append(prompt_counts_, adjustment.prompt_counts());
  append(output_counts_, adjustment.output_counts());
  append(bias_, adjustment.bias());
}

bool AdjustedRows::adjust(const ExecContext& ctx, const StepSchedule& step, TensorView logits) {
  const auto has_any = [](const RowStep& row) {
    return row.num_logits > 0 && row.sequence->adjustment != nullptr;
  };
  if (std::ranges::none_of(step.rows, has_any)) return false;
  for (auto* ints : {&token_ids_, &prompt_counts_, &output_counts_}) ints->clear();
  bias_.clear();
  indptr_.assign(1, 0);
  for (const RowStep& row : step.rows) {
    RowAdjustment* const own = row.sequence->adjustment.get();
    const std::span<const int32_t> drafts = row.drafts();
    for (int64_t i = 0; i < row.num_logits; ++i) {
      if (own != nullptr) {
        const auto num_before = static_cast<size_t>(i);
        if (i > 0) own->count(drafts[num_before - 1]);
        own->prepare({row.sequence->answer.completion.token_ids, drafts.first(num_before)});
        add(*own);
      }
      indptr_.push_back(static_cast<int32_t>(token_ids_.size()));
    }
    if (own == nullptr) continue;
    for (const int32_t draft : drafts) own->uncount(draft);
  }
  staged_.clear();
  const auto options = [&](float SamplingOptions::*field) {
    options_.clear();
    for (const RowStep& row : step.rows) {
      const RowAdjustment* const own = row.sequence->adjustment.get();
      const float value = (own == nullptr ? SamplingOptions{} : own->sampling()).*field;
      options_.insert(options_.end(), static_cast<size_t>(row.num_logits), value);
    }
    return staged_.add(options_);
  };
  views_ = {.indptr = staged_.add(indptr_),
            .token_ids = staged_.add(token_ids_),
            .prompt_counts = staged_.add(prompt_counts_),
            .output_counts = staged_.add(output_counts_),
            .bias = staged_.add(bias_),
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
