#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "heddle/core/dtype.h"

namespace heddle::cuda {

__device__ inline float widen(__half v) { return __half2float(v); }
__device__ inline float widen(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float widen(float v) { return v; }
template <class T>
__device__ T narrow(float v);
template <>
__device__ inline __half narrow<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ inline float narrow<float>(float v) {
  return v;
}

/// Two neighbours as one word.
template <class T>
__device__ float2 widen_two(uint32_t two);
template <>
__device__ inline float2 widen_two<__half>(uint32_t two) {
  return __half22float2(*reinterpret_cast<const __half2*>(&two));
}
template <>
__device__ inline float2 widen_two<__nv_bfloat16>(uint32_t two) {
  return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
}
template <class T>
__device__ uint32_t narrow_two(float2 v);
template <>
__device__ inline uint32_t narrow_two<__half>(float2 v) {
  const __half2 two = __float22half2_rn(v);
  return *reinterpret_cast<const uint32_t*>(&two);
}
template <>
__device__ inline uint32_t narrow_two<__nv_bfloat16>(float2 v) {
  const __nv_bfloat162 two = __float22bfloat162_rn(v);
  return *reinterpret_cast<const uint32_t*>(&two);
}

/// Two neighbours as e4m3, `low` first: rounded to nearest even, 448 where larger, 0x7f for NaN;
/// from_float<float8_e4m3>'s bits.
__device__ inline uint16_t narrow_two_e4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
  return two;
#else
  const auto narrow_one = [](float x) -> uint32_t {
    const uint32_t bits = __float_as_uint(x), sign = (bits >> 24) & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fu;
    if (magnitude >= 0x43e00000u) return sign | 0x7eu;
    if (magnitude < 0x3c800000u) {  // below 2^-6: multiples of 2^-9
      return sign | (__float_as_uint(__uint_as_float(magnitude) + 16384.0f) - 0x46800000u);
    }
    return sign | ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - (120u << 23)) >> 20);
  };
  return static_cast<uint16_t>(narrow_one(low) | narrow_one(high) << 8);
#endif
}

/// Two neighbours of e4m3 as two f16, exactly.
__device__ inline uint32_t widen_two_e4m3(uint16_t two) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
  return halves;
#else
  // With its exponent read as that of an f16 a code is 2^8 times too small, subnormal codes too.
  const uint32_t bytes = __byte_perm(two, 0, 0x1404), magnitude = (bytes & 0x7f007f00u) >> 1;
  const uint32_t small = (bytes & 0x80008000u) | magnitude, factor = 0x5c005c00u;  // 2^8, twice
  uint32_t halves;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(small), "r"(factor));
  return halves | (__vcmpeq2(magnitude, 0x3f803f80u) & 0x7fff7fffu);
#endif
}

/// Calls f with a value of the type that holds `dtype`.
template <class F>
__device__ void with_type(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) {
    f(float{});
  } else if (dtype == DType::kFloat16) {
    f(__half{});
  } else {
    f(__nv_bfloat16{});
  }
}
/// The same where the dtype is known to be T's.
template <bool kIsT, class T, class F>
__device__ void with_type_or(DType dtype, F&& f) {
  if constexpr (kIsT) {
    f(T{});
  } else {
    with_type(dtype, f);
  }
}

}  // namespace heddle::cuda
