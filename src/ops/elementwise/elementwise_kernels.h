#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

namespace heddle::cpu::elementwise {

/// x [n], in place; y [n].
void add(float* x, const float* y, int64_t n);
void scale(float* x, int64_t n, float factor);
void soft_cap(float* x, int64_t n, float cap);
/// y [n] of f16 or bf16.
void round_to(half* y, const float* x, int64_t n);
void round_to(bfloat16* y, const float* x, int64_t n);

}  // namespace heddle::cpu::elementwise

namespace heddle::cuda::elementwise {

/// Rows of a result, and of an f32 operand where the operation has one.
struct ElementwiseParams {
  std::byte* result;                      // [num_tokens, width]
  const float* operand;                   // [num_tokens, width]
  int64_t result_stride, operand_stride;  // elements
  int64_t num_tokens, width;
  float number;
};

void add(const ExecContext& ctx, const ElementwiseParams& p);
void scale(const ExecContext& ctx, const ElementwiseParams& p);
void soft_cap(const ExecContext& ctx, const ElementwiseParams& p);
/// result of f16 or bf16.
void round_to(const ExecContext& ctx, const ElementwiseParams& p, DType dtype);

}  // namespace heddle::cuda::elementwise
