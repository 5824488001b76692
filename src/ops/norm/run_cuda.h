#pragma once

#include "heddle/ops/norm.h"

#include "ops/norm/rms_norm_kernels.h"

namespace heddle {

/// The scales of checked options as kernels take them.
inline RmsNormScale pack(const Fp8OutputScale& scale) {
  return {.fixed = scale.fixed ? scale.fixed.data<float>() : nullptr,
          .per_row = scale.per_row ? scale.per_row.data<float>() : nullptr};
}

/// Rows of checked tensors, of which none is empty, on a CUDA device. residual may be absent.
void run_rms_norm_cuda(const ExecContext& ctx, const TensorView& output, const TensorView& residual,
                       const ConstTensorView& input, const ConstTensorView& weight,
                       const RmsNormOptions& options);

}  // namespace heddle
