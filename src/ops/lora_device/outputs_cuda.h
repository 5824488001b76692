#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora_device/sums.h"

namespace heddle::cuda::lora {

/// The first of four outputs that lane (g, q) of a warp has in a half of 256 outputs: warp w has
/// the outputs 32 w + [0, 32), its lanes of group g have 4 g + [0, 4) of these.
__device__ inline int output_of_lane(int half) {
  return half * kTileOutputs + static_cast<int>(threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4 * 4);
}

/// One element of y: old + factor * sum, rounded once, or without accumulate factor * sum.
template <class Y>
__device__ Y finish(Y old, float factor, float sum, bool accumulate) {
  return narrow<Y>(accumulate ? __fmaf_rn(factor, sum, widen(old)) : factor * sum);
}

}  // namespace heddle::cuda::lora
