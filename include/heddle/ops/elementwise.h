#pragma once

#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

// What some models do to each element of a matrix: Gemma and Granite scale embeddings, residuals or
// logits, Gemma 2 caps logits. In place:
//   x [num_tokens, width]  f32; last axis without gaps, rows of any stride
// The bits of an element depend on its old value and the number alone, not on its place. On the CPU
// and on CUDA, there asynchronous on ctx.stream in one launch; but for soft_cap with the same bits.

/// x = f32(x + y), rounded once. y [num_tokens, width] f32, rows of any stride, not x itself: what
/// OLMo 2 adds to its residual, which no norm follows.
void add(const ExecContext& ctx, TensorView x, ConstTensorView y);

/// x = f32(x * factor), rounded once.
void scale(const ExecContext& ctx, TensorView x, float factor);

/// x = cap * tanh(x / cap), in f32, with the division and the product rounded; cap is finite and
/// above 0. The soft cap of attention (AttentionOptions::logits_soft_cap) for any matrix, on the
/// CPU by the same code. The relative error is at most 2^-20 where x / cap and x are normal
/// numbers; infinity gives cap, -infinity -cap, NaN gives NaN.
void soft_cap(const ExecContext& ctx, TensorView x, float cap);

/// y = T(x), rounded once to nearest, ties to even: what a product reads of an f32 residual.
///   y [num_tokens, width] f16|bf16, x [num_tokens, width] f32; last axes without gaps, rows of any
///   stride, not in the same memory
void round_to(const ExecContext& ctx, TensorView y, ConstTensorView x);

/// Where the sum of rows starts.
enum class SumStart : uint8_t { kZero, kSum };

/// sum[j] = start + x[0, j] + x[1, j] + ..., added one after the other in f32, each addition
/// rounded once, where start is 0 or the old sum[j]. So sums of rows [0, m) and then [m, n) have
/// the bits of the sum of all n: mean pooling of a prompt that is computed in chunks.
///   sum [width] f32, x [num_rows, width] f32|f16|bf16; last axes without gaps, rows of any stride;
///   not in the same memory
void sum_rows(const ExecContext& ctx, TensorView sum, ConstTensorView x, SumStart start);

}  // namespace heddle
