#pragma once

#include <cstdint>

namespace heddle {

/// LogitAdjustments with the logits that they change, as raw arrays.
struct AdjustParams {
  float* logits;
  int64_t row_stride;  // of the logits, in elements
  int64_t num_rows, vocab_size, num_entries;
  const int32_t* indptr;     // [num_rows + 1]
  const int32_t* token_ids;  // [num_entries], and so all that follow
  const int32_t* prompt_counts = nullptr;
  const int32_t* output_counts = nullptr;
  const float* bias = nullptr;
  const float* repetition = nullptr;  // [num_rows], and so the next two
  const float* presence = nullptr;
  const float* frequency = nullptr;
  float* saved = nullptr;           // [num_entries] or nullptr: takes the logits of before
  const float* restored = nullptr;  // [num_entries]: of restore_logits
};

}  // namespace heddle
