#pragma once

#include <cstdint>

namespace heddle::cuda {

/// n / d for a quotient below 2^20 and d in [1, 2^31): an approximate quotient in f32, which errs
/// by up to one, then one step by its remainder. Fewer instructions than the operator.
[[nodiscard]] __device__ inline uint32_t divide_small(uint32_t n, uint32_t d) {
  const auto quotient =
      static_cast<uint32_t>(__fdividef(static_cast<float>(n), static_cast<float>(d)));
  const auto rest = static_cast<int32_t>(n - quotient * d);
  return rest < 0 ? quotient - 1 : quotient + (rest >= static_cast<int32_t>(d) ? 1 : 0);
}
/// The same rounded up, where n + d - 1 fits.
[[nodiscard]] __device__ inline uint32_t ceil_div_small(uint32_t n, uint32_t d) {
  return divide_small(n + d - 1, d);
}

}  // namespace heddle::cuda
