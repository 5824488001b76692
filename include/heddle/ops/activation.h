#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// y = T(silu(gate) * up),  silu(v) = v / (1 + exp(-v)), computed in f32, rounded once; on CPUs and GPUs
///   y, gate, up [num_tokens, width]  f32|f16|bf16, the same dtype T; last axis without gaps, rows of any stride
/// (gate and up of one fused product are two views of it). y may be gate or up itself.
/// The bits of an element depend on its two inputs alone, not on its place. Before the rounding to T an error of at most
/// 2^-20 + max(0, -gate) 2^-22, relative; GPUs take results of exp below 2^-126 for 0.
void silu_and_mul(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up);

}  // namespace heddle
