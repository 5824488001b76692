#pragma once

#include <cstdint>

#include "heddle/core/dtype.h"

namespace heddle::cpu::attention {

/// to [n] = from [n] of another dtype, both f32|f16|bf16: rounded once, to nearest, ties to even.
void convert_row(DType from_dtype, const void* from, DType to_dtype, void* to, int64_t n);

/// max |from [n]| / 448 of f32|f16|bf16, where NaN counts nothing: the scale of a head of its own.
float scale_of_row(DType from_dtype, const void* from, int64_t n);
/// codes [n] of from [n] / scale, by the words of kv_init.
void quantise_row(DType from_dtype, const void* from, float scale, float8_e4m3* codes, int64_t n);

}  // namespace heddle::cpu::attention
