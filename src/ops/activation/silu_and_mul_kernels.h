#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/dtype.h"

namespace heddle {

struct SiluAndMulParams {
  std::byte* y;  // [num_tokens, width], dtype, as gate and up
  const std::byte* gate;
  const std::byte* up;
  int64_t y_stride, gate_stride, up_stride;  // bytes between rows
  DType dtype;
};

namespace cpu::activation {
/// The columns [begin, end) of one row.
void silu_and_mul(const SiluAndMulParams& p, int64_t row, int64_t begin, int64_t end);
}  // namespace cpu::activation
}  // namespace heddle
