#pragma once

#include "cuda/exp_cuda.h"

namespace heddle::cuda::activation {

/// x / (1 + 2^-z), accurate where z is far below 0, too: with e = 2^-|z|, which never overflows, it
/// is x / (1 + e), or for a negative z x e / (1 + e). Where z is -infinity, e is 0 and the bound on
/// x makes the result its limit, -0.
__device__ inline float times_sigmoid2(float x, float z) {
  const float e = exp2_fast(-fabsf(z));
  const float bounded = x < -1e30f ? -1e30f : x;
  return __fdividef(z < 0.0f ? bounded * e : x, 1.0f + e);
}

}  // namespace heddle::cuda::activation
