#include "engine/runner/adjusted_rows.h"

#include <algorithm>
#include <utility>

#include "engine/rules/row_adjustment.h"

namespace heddle {
namespace {

template <class T>
void append(std::vector<T>& to, std::span<const T> values) {
  to.insert(to.end(), values.begin(), values.end());
}

}  // namespace

void AdjustedRows::reserve(Device device, int64_t num_rows, int64_t num_entries) {
  if (num_rows <= num_rows_ && num_entries <= num_entries_) return;
  num_rows = std::max(num_rows, num_rows_);
  // Twice as many as before at least, so that requests that start one by one do not each move it.
  num_entries =
      num_entries <= num_entries_ ? num_entries_ : std::max(num_entries, 2 * num_entries_);
  const auto rows = static_cast<size_t>(num_rows), entries = static_cast<size_t>(num_entries);
  for (auto* column : {&repetition_, &presence_, &frequency_}) column->reserve(rows);
  indptr_.reserve(rows + 1);
  for (auto* column : {&token_ids_, &prompt_counts_, &output_counts_}) column->reserve(entries);
  bias_.reserve(entries);
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
  for (auto* column : {&indptr_, &token_ids_, &prompt_counts_, &output_counts_}) column->clear();
  for (auto* column : {&bias_, &repetition_, &presence_, &frequency_}) column->clear();
  indptr_.push_back(0);
  for (const RowStep& row : step.rows) {
    if (row.num_logits == 0) continue;
    SamplingOptions options{};
    if (row.sequence->adjustment != nullptr) {
      RowAdjustment& own = *row.sequence->adjustment;
      own.prepare(row.sequence->answer.completion.token_ids);
      append(token_ids_, own.token_ids());
      append(prompt_counts_, own.prompt_counts());
      append(output_counts_, own.output_counts());
      append(bias_, own.bias());
      options = own.sampling();
    }
    indptr_.push_back(static_cast<int32_t>(token_ids_.size()));
    repetition_.push_back(options.repetition_penalty);
    presence_.push_back(options.presence_penalty);
    frequency_.push_back(options.frequency_penalty);
  }
  staged_.clear();
  views_ = {.indptr = staged_.add(indptr_),
            .token_ids = staged_.add(token_ids_),
            .prompt_counts = staged_.add(prompt_counts_),
            .output_counts = staged_.add(output_counts_),
            .bias = staged_.add(bias_),
            .repetition = staged_.add(repetition_),
            .presence = staged_.add(presence_),
            .frequency = staged_.add(frequency_)};
  staged_.copy(ctx);
  adjust_logits(ctx, logits, saved_.rows(std::ssize(token_ids_)), views_);
  return true;
}

void AdjustedRows::restore(const ExecContext& ctx, TensorView logits) {
  restore_logits(ctx, logits, saved_.rows(std::ssize(token_ids_)), views_);
}

}  // namespace heddle
