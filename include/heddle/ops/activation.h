#pragma once

#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// y = T(silu(gate) * up),  silu(v) = v / (1 + exp(-v)), computed in f32, rounded once
///   y, gate, up [num_tokens, width]  f32|f16|bf16, the same dtype T; last axis without gaps, rows
///   of any stride (gate and up of one fused product are two views of it)
/// y may be gate or up itself. The bits of an element depend on its two inputs alone, not on its
/// place. Before the rounding to T the relative error is at most 2^-20 + max(0, -gate) 2^-22; GPUs
/// take results of exp below 2^-126 for 0.
void silu_and_mul(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up);

/// Two functions that are called GELU; a model was trained with one of them.
enum class GeluForm : int32_t {
  kErf,   // v (1 + erf(v / sqrt(2))) / 2
  kTanh,  // v (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))) / 2: Gemma, Phi-2
};

/// y = T(gelu(gate) * up), gelu in the given form, computed in f32, rounded once
///   y, gate, up [num_tokens, width]  f32|f16|bf16, the same dtype T; last axis without gaps, rows
///   of any stride (gate and up of one fused product are two views of it)
/// y may be gate or up itself. The bits of an element depend on its two inputs alone, not on its
/// place. Before the rounding to T the relative error is at most 2^-20 + s 2^-22, where gelu of a
/// negative gate falls like exp(-s): s is gate^2 / 2 with kErf, and with kTanh
/// -2 sqrt(2 / pi) (gate + 0.044715 gate^3). GPUs take results of exp below 2^-126 for 0.
void gelu_and_mul(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up,
                  GeluForm form);

}  // namespace heddle
