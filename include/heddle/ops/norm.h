#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// What an output of f8e4m3 is divided by before it is rounded: one of the two is given, on the
/// context's device.
struct Fp8OutputScale {
  ConstTensorView fixed;  // one element f32, rank 0 or 1: of all rows, read where it lies
  TensorView per_row;  // [...] f32 without gaps, the shape of input without its last axis: written
};

struct RmsNormOptions {
  float epsilon = 1e-6f;
  int weight_offset = 0;             // 0: scale by w; 1: scale by 1 + w (Gemma)
  Fp8OutputScale output_scale = {};  // for an output of f8e4m3, and for no other
};

/// output = T(input * rstd * (weight_offset + weight)),  rstd = 1 / sqrt(mean(input^2) + epsilon)
///   over the last axis
///   output, input [..., width]  f32|f16|bf16, the same dtype T; last axis without gaps, other axes
///     of any stride
///   weight        [width]       T or f32
/// Sums in f32, one rounding at the end. output may be input itself (same data and strides).
/// The bits of a row depend on that row and the weight alone. Any width; empty tensors are a no-op.
///
/// Where T is f32, output may also be f16 or bf16: the same value, rounded once to that dtype. So a
/// residual stays f32 while products read what they multiply; output then is not input.
///
/// output may also be f8e4m3, whatever T is: with v the f32 value that T(...) rounds, it is E(v *
/// (1 / scale)), where E rounds to nearest even and what is larger than 448 becomes 448. scale is
/// options.output_scale.fixed, or of each row max(max|v| / 448, 2^-126) over the elements that are
/// no NaN, which goes to options.output_scale.per_row.
///
/// On the CPU and on CUDA, which add up in another order each. Asynchronous on ctx.stream; one
/// launch where the axes before the last can be counted as three. Root mean square layer
/// normalisation: Zhang and Sennrich 2019, arXiv 1910.07467.
void rms_norm(const ExecContext& ctx, TensorView output, ConstTensorView input,
              ConstTensorView weight, const RmsNormOptions& options = {});

/// residual = T(f32(residual) + f32(input));  output = rms_norm(residual)
/// The norm is taken of the rounded residual, so it can be computed again from what is stored.
/// Shapes and dtypes as rms_norm, residual as input. output may be input itself.
void fused_add_rms_norm(const ExecContext& ctx, TensorView output, TensorView residual,
                        ConstTensorView input, ConstTensorView weight,
                        const RmsNormOptions& options = {});

}  // namespace heddle
