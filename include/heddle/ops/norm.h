#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

struct RmsNormOptions {
  float epsilon = 1e-6f;
  int weight_offset = 0;  // 0: scale by w; 1: scale by 1 + w (Gemma)
};

/// output = T(input * rstd * (weight_offset + weight)),  rstd = 1 / sqrt(mean(input^2) + epsilon) over the last axis
///   output, input [..., width]  f32|f16|bf16, the same dtype T; last axis without gaps, other axes of any stride
///   weight        [width]       T or f32
/// Sums in f32, one rounding at the end. output may be input itself (same data and strides).
/// The bits of a row depend on that row and the weight alone. Any width; empty tensors are a no-op.
/// Root mean square layer normalisation: Zhang and Sennrich 2019, arXiv 1910.07467.
void rms_norm(const ExecContext& ctx, TensorView output, ConstTensorView input,
              ConstTensorView weight, const RmsNormOptions& options = {});

/// residual = T(f32(residual) + f32(input));  output = rms_norm(residual)
/// The norm is taken of the rounded residual, so it can be computed again from what is stored.
/// Shapes and dtypes as rms_norm, residual as input. output may be input itself.
void fused_add_rms_norm(const ExecContext& ctx, TensorView output, TensorView residual,
                        ConstTensorView input, ConstTensorView weight,
                        const RmsNormOptions& options = {});

}  // namespace heddle
