#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace heddle::cuda::attention {

/// Two elements as one word: the bits of their exponents, and 1 in both.
template <class T>
inline constexpr uint32_t kExponents = 0x7f807f80;
template <>
inline constexpr uint32_t kExponents<__half> = 0x7c007c00;
template <class T>
inline constexpr uint32_t kOnes = 0x3f803f80;
template <>
inline constexpr uint32_t kOnes<__half> = 0x3c003c00;

/// All bits of the elements that are infinite or NaN.
template <class T>
__device__ uint32_t not_finite(uint32_t two) {
  return __vcmpeq2(two & kExponents<T>, kExponents<T>);
}

}  // namespace heddle::cuda::attention
