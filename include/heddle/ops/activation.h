#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// y = T(silu(gate) * up),  silu(v) = v / (1 + exp(-v)), computed in f32, rounded once
///   y, gate, up [num_tokens, width]  f32|f16|bf16, the same dtype T; last axis without gaps, rows of any stride
/// (gate and up of one fused product are two views of it). y may be gate or up itself.
/// The bits of an element depend on its two inputs alone, not on its place. exp is accurate to 2 ulp.
void silu_and_mul(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up);

}  // namespace heddle
