#pragma once

#include <cstdint>

#include "heddle/core/dtype.h"

namespace heddle::cpu::attention {

/// to [n] = from [n] of another dtype, both f32|f16|bf16: rounded once, to nearest, ties to even.
void convert_row(DType from_dtype, const void* from, DType to_dtype, void* to, int64_t n);

}  // namespace heddle::cpu::attention
