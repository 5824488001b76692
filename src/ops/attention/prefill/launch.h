#pragma once

#include "ops/attention/prefill/prefill_params.h"
#include "ops/attention/prefill/prefill_sm90_params.h"

namespace heddle::cuda::attention::prefill {

/// dim: of the heads, 64, 128 or 256. More: NoRotation for the aligned kernel, RotaryFrequencies
/// for the general one, without pairs where nothing rotates, KvScaleParams for a cache of f8e4m3.
/// The call is not empty.
template <class More>
void launch(const PrefillParams& p, const More& more, int dim, int64_t num_blocks,
            const AttentionLaunch& launch);

/// One instance of the kernel. T: half or bfloat16. The files of instances/ have them.
template <class T, int kDim, class More>
void launch_instance(const PrefillParams& p, const More& more, int64_t num_blocks,
                     const AttentionLaunch& launch);

/// The kernel for compute capability 9.0, of heads taken as `dim` elements: 64 or 128. Params:
/// PrefillSm90Params or CodePrefillSm90Params.
template <class Params>
void launch_sm90(const Params& p, int dim, const AttentionLaunch& launch);

/// One instance of it.
template <class T, int kDim, class Params>
void launch_sm90_instance(const Params& p, const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention::prefill
