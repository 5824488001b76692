#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora/device/params.h"

namespace heddle::cuda::lora {

/// First output of this lane in a half, which has four; those of the warp are 32.
__device__ inline int output_of_lane(int half) {
  return half * kTileOutputs + static_cast<int>(threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4 * 4);
}

/// y (+)= factor * sum, where y is one element.
template <class Y>
__device__ Y finish(Y old, float factor, float sum, bool accumulate) {
  return narrow<Y>(accumulate ? __fmaf_rn(factor, sum, widen(old)) : factor * sum);
}

}  // namespace heddle::cuda::lora
