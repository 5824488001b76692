#include "engine/runner/masked_rows.h"

#include <algorithm>
#include <utility>

#include "heddle/ops/sampling.h"

#include "core/math.h"
#include "engine/rules/row_mask.h"

namespace heddle {

void MaskedRows::reserve(Device device, int64_t num_rows, int64_t num_tokens) {
  if (num_rows <= num_rows_ && num_tokens <= num_tokens_) return;
  num_rows = std::max(num_rows, num_rows_);
  num_tokens = std::max(num_tokens, num_tokens_);
  const int64_t num_words = num_rows * ceil_div(num_tokens, int64_t{32});
  rows_.reserve(static_cast<size_t>(num_rows));
  indices_.reserve(rows_.capacity());
  words_.reserve(static_cast<size_t>(num_words));
  StagedArrays staged(device, StagedArrays::bytes_for<int32_t>(num_rows) +
                                  StagedArrays::bytes_for<int32_t>(num_words));
  masked_ = DeviceTensor(device, DType::kFloat32, {num_rows, num_tokens});
  staged_ = std::move(staged);
  num_rows_ = num_rows;
  num_tokens_ = num_tokens;
}

TensorView MaskedRows::mask(const ExecContext& ctx, const StepSchedule& step, TensorView logits) {
  const auto has_mask = [](const RowStep& row) {
    return row.num_logits > 0 && row.sequence->mask != nullptr;
  };
  if (std::ranges::none_of(step.rows, has_mask)) return logits;
  rows_.clear();
  indices_.assign(static_cast<size_t>(logits.size(0)), -1);
  int64_t num_masks = 0;
  for (const RowStep& row : step.rows) {
    if (!has_mask(row)) continue;
    rows_.push_back({&row, num_masks});
    for (int64_t i = 0; i < row.num_logits; ++i) {
      indices_[static_cast<size_t>(row.logits_begin + i)] = static_cast<int32_t>(num_masks++);
    }
  }
  const int64_t num_words = ceil_div(logits.size(1), int64_t{32});
  words_.assign(static_cast<size_t>(num_masks * num_words), 0);
  parallel_for(ctx, std::ssize(rows_), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [row, first] = rows_[static_cast<size_t>(i)];
      Sequence& sequence = *row->sequence;
      sequence.mask->fill(sequence.answer.completion.token_ids, row->drafts());
      for (int64_t j = 0; j < row->num_logits; ++j) {
        std::ranges::copy(sequence.mask->words(j), words_.begin() + (first + j) * num_words);
      }
    }
  });
  staged_.clear();
  const ConstTensorView indices = staged_.add(indices_);
  const ConstTensorView words = staged_.add(words_);
  staged_.copy(ctx);
  const TensorView masked = masked_.rows(logits.size(0)).narrow(1, 0, logits.size(1));
  mask_logits(ctx, masked, logits, indices,
              {words.raw(), DType::kInt32, words.device(), {num_masks, num_words}});
  return masked;
}

}  // namespace heddle
