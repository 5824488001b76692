#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/dtype.h"

namespace heddle {

/// Rows that lie at constant distances. With a residual, it takes the input in first and the norm
/// is taken of it.
struct RmsNormRun {
  std::byte* output;                                     // [num_rows, width], dtype
  std::byte* residual;                                   // [num_rows, width], dtype, or nullptr
  const std::byte* input;                                // [num_rows, width], dtype
  const std::byte* weight;                               // [width], weight_dtype: dtype or f32
  int64_t output_stride, residual_stride, input_stride;  // bytes between rows
  int64_t num_rows, width;
  DType dtype, weight_dtype;
  float epsilon, weight_offset;
};

namespace cpu {
void rms_norm(const RmsNormRun& run);
}
}  // namespace heddle
