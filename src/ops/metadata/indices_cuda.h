#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/divide.h"
#include "cuda/index_cuda.h"
#include "cuda/warp.h"

#include "ops/metadata/indices.h"

// The device's side of indices.h. The index width is a branch that all threads of a kernel take
// alike.

namespace heddle::cuda::metadata {

/// Of signed integers.
template <class A, class B>
__device__ std::common_type_t<A, B> smaller(A a, B b) {
  return a < b ? a : b;
}
template <class A, class B>
__device__ std::common_type_t<A, B> larger(A a, B b) {
  return a > b ? a : b;
}

template <class Byte>
__device__ Byte* address_of(const BasicIndexList<Byte>& t, int64_t i) {
  return t.data + i * t.step_bytes();
}
using cuda::load_input;
template <class Byte>
__device__ LoadedIndex load_input(const BasicIndexList<Byte>& t, int64_t i, bool in_range = true) {
  return load_input(address_of(t, i), t.is_int64, in_range);
}
__device__ inline void store_at(std::byte* at, bool is_int64, int64_t value) {
  if (is_int64) {
    *reinterpret_cast<int64_t*>(at) = value;
  } else {
    *reinterpret_cast<int32_t*>(at) = static_cast<int32_t>(value);
  }
}

/// The row with starts[row] <= element < starts[row + 1], for starts[0] <= element <
/// starts[num_rows]. Where the starts do not ascend it is some row of which this is true.
template <class Place>
__device__ int row_of(const Place* starts, int num_rows, Place element) {
  int row = 0;
  for (int high = num_rows; high - row > 1;) {
    const int middle = (row + high) / 2;
    (starts[middle] <= element ? row : high) = middle;
  }
  return row;
}

inline constexpr int kMaxWarps = 32;

/// Several sums that are computed together, so that their exchanges overlap.
template <int kCount>
struct Sums {
  int64_t of[kCount];
};

/// The sums over the threads before this one, and over all; each sum stops at its cap,
/// which lets it be taken in any order. Numbers and caps are not negative and at most kHuge. Called
/// by all threads of a block of whole warps; a barrier lies between two calls with the same
/// scratch.
template <int kCount>
__device__ Sums<kCount> block_sums_before(Sums<kCount> x, const Sums<kCount>& cap,
                                          Sums<kCount> (&scratch)[kMaxWarps], Sums<kCount>& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const int64_t other = __shfl_up_sync(kAllLanes, x.of[k], distance);
      if (lane >= distance) x.of[k] = smaller(x.of[k] + other, cap.of[k]);
    }
  }
  if (lane == 31) scratch[warp] = x;
  Sums<kCount> before;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    before.of[k] = __shfl_up_sync(kAllLanes, x.of[k], 1);
    if (lane == 0) before.of[k] = 0;
    total.of[k] = 0;
  }
  __syncthreads();
  Sums<kCount> front{};  // of the warps before
  for (int w = 0; w < num_warps; ++w) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (w == warp) front.of[k] = total.of[k];
      total.of[k] = smaller(total.of[k] + scratch[w].of[k], cap.of[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) before.of[k] = smaller(before.of[k] + front.of[k], cap.of[k]);
  return before;
}

/// block_sums_before() for a block of 256 threads whose numbers are at most kSmallSum.
__device__ inline uint32_t block_sum_before(uint32_t x, uint32_t (&scratch)[8], uint32_t& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = x;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  uint32_t before = sum - x;
  total = 0;
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    if (w < warp) before += scratch[w];
    total += scratch[w];
  }
  return before;
}

}  // namespace heddle::cuda::metadata
