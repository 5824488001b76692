#pragma once

#include <cstdint>

#include "heddle/core/context.h"

namespace heddle {

inline constexpr int64_t kTokensPerWord = 32;

/// The arguments of mask_logits as raw arrays; strides in elements.
struct MaskParams {
  float* masked;
  const float* logits;
  const int32_t* indices;  // [num_rows]
  const int32_t* masks;    // [num_masks, num_words]
  int64_t masked_stride, logits_stride, mask_stride;
  int64_t num_rows, vocab_size, num_masks, num_words;
};

namespace cuda::sampling {
void mask_logits(const ExecContext& ctx, const MaskParams& params);
}  // namespace cuda::sampling

}  // namespace heddle
