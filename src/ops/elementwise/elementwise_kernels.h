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
/// sum [n] += x [num_rows, n], rows `stride` elements apart.
void sum_rows(float* sum, const float* x, int64_t stride, int64_t num_rows, int64_t n);
void sum_rows(float* sum, const half* x, int64_t stride, int64_t num_rows, int64_t n);
void sum_rows(float* sum, const bfloat16* x, int64_t stride, int64_t num_rows, int64_t n);

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

struct SumRowsParams {
  float* sum;          // [width]
  const std::byte* x;  // [num_rows, width]
  int64_t stride;      // of x, elements
  int64_t num_rows, width;
  bool from_zero;
};

/// x of f32, f16 or bf16.
void sum_rows(const ExecContext& ctx, const SumRowsParams& p, DType dtype);

}  // namespace heddle::cuda::elementwise
