#pragma once

namespace heddle::cuda {

/// 2^x within 2 ulp, results below 2^-126 are 0. exp2_fast(0) is 1.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace heddle::cuda
