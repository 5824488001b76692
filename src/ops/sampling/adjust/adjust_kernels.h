#pragma once

#include "heddle/core/context.h"

#include "ops/sampling/adjust/adjust_params.h"

namespace heddle::cuda::sampling {

/// The functions of heddle/ops/sampling.h, launched on the stream.
void adjust_logits(const AdjustParams& params, cudaStream_t stream);
void restore_logits(const AdjustParams& params, cudaStream_t stream);

}  // namespace heddle::cuda::sampling
