#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/dtype.h"

namespace heddle::cpu::embedding {

/// y[i] = f32(row[i]) for i < width. row: f16 or bf16.
void widen_row(float* y, const std::byte* row, DType dtype, int64_t width);

}  // namespace heddle::cpu::embedding
