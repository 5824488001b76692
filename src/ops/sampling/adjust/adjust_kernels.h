#pragma once

#include "heddle/core/context.h"

#include "ops/sampling/adjust/adjust_params.h"

namespace heddle::cuda::sampling {

/// The functions of heddle/ops/sampling.h, launched on the stream of the context.
void adjust_logits(const ExecContext& ctx, const AdjustParams& params);
void restore_logits(const ExecContext& ctx, const AdjustParams& params);

}  // namespace heddle::cuda::sampling
