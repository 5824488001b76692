#pragma once

#include "heddle/core/context.h"

#include "ops/sampling/sample/sample_params.h"

namespace heddle::cuda::sampling {

/// The functions of heddle/ops/sampling.h, launched on the stream of the context.
void sample(const ExecContext& ctx, const SampleParams& params);
void token_logprobs(const ExecContext& ctx, const TokenLogprobsParams& params);

}  // namespace heddle::cuda::sampling
