#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/convert_cuda.h"

#include "ops/norm/select_kernel.h"

namespace heddle::cuda::norm {

/// Elements that a lane of rms_norm moves at once.

/// The bits of 8 elements.
template <class T>
struct LaneVector {
  uint32_t words[kVectorElements * sizeof(T) / 4];
};
template <class T>
inline constexpr int kWords = kVectorElements * sizeof(T) / 4;

template <class T>
__device__ void widen_vector(const LaneVector<T>& vector, float (&values)[kVectorElements]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) values[i] = __uint_as_float(vector.words[i]);
  } else {
#pragma unroll
    for (int w = 0; w < kWords<T>; ++w) {
      const float2 two = widen_two<T>(vector.words[w]);
      values[2 * w] = two.x;
      values[2 * w + 1] = two.y;
    }
  }
}
template <class T>
__device__ LaneVector<T> narrow_piece(const float (&values)[kVectorElements]) {
  LaneVector<T> vector;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) vector.words[i] = __float_as_uint(values[i]);
  } else {
#pragma unroll
    for (int w = 0; w < kWords<T>; ++w) {
      vector.words[w] = narrow_two<T>({values[2 * w], values[2 * w + 1]});
    }
  }
  return vector;
}

/// What holds the bits of one element.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

/// The first `count` elements at p, zeros after them. kVectors: p is a multiple of 16 bytes, and
/// count is 8 or more, or else none. So a load is one predicated instruction, and the loads after
/// it need not wait for it.
template <bool kVectors, class T, class Index>
__device__ LaneVector<T> load_piece(const T* p, Index count) {
  LaneVector<T> vector{};
  if constexpr (kVectors) {
#pragma unroll
    for (int w = 0; w < kWords<T>; w += 4) {
      const uint4 four = count > 0 ? reinterpret_cast<const uint4*>(p)[w / 4] : uint4{0, 0, 0, 0};
      vector.words[w] = four.x;
      vector.words[w + 1] = four.y;
      vector.words[w + 2] = four.z;
      vector.words[w + 3] = four.w;
    }
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      const uint32_t bits = i < count ? reinterpret_cast<const Bits<T>*>(p)[i] : 0;
      vector.words[i / kPerWord] |= bits << (16 * (i % kPerWord));
    }
  }
  return vector;
}
template <bool kVectors, class T, class Index>
__device__ void store_piece(T* p, const LaneVector<T>& vector, Index count) {
  if constexpr (kVectors) {
#pragma unroll
    for (int w = 0; w < kWords<T>; w += 4) {
      // As one instruction: the compiler may split a plain store of four words.
      if (count > 0) {
        asm volatile(
            "st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(p) + w / 4),
            "r"(vector.words[w]), "r"(vector.words[w + 1]), "r"(vector.words[w + 2]),
            "r"(vector.words[w + 3])
            : "memory");
      }
    }
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      if (i < count) {
        reinterpret_cast<Bits<T>*>(p)[i] =
            static_cast<Bits<T>>(vector.words[i / kPerWord] >> (16 * (i % kPerWord)));
      }
    }
  }
}
/// For e4m3, where kVectors asks for a multiple of 8 bytes only.
template <bool kVectors, class Index>
__device__ void store_piece_e4m3(uint8_t* p, const float (&values)[kVectorElements], Index count) {
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const float* four = values + 4 * w;
    words[w] = narrow_two_e4m3(four[0], four[1]) | narrow_two_e4m3(four[2], four[3]) << 16;
  }
  if constexpr (kVectors) {
    if (count > 0) *reinterpret_cast<uint2*>(p) = {words[0], words[1]};
  } else {
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      if (i < count) p[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
    }
  }
}

}  // namespace heddle::cuda::norm
