#pragma once

#include "cuda/mma_cuda.h"

#include "ops/lora_device/operands_cuda.h"

namespace heddle::cuda::lora {

// What a block computes for a work item of shrink, [16 ranks] x [up to 16 rows] over 512 features:
//
//   features   | 64 of warp 0 | 64 of warp 1 | ... | 64 of warp 7 |   each warp: 16 ranks x 16 rows
//
//   lane (g, q) of a warp, 8 rows at a time:
//     loads      features 8 q + [0, 8) of each 32, of the ranks g and g + 8 and of row g
//     has sums   of the ranks g and g + 8 and the rows 2 q and 2 q + 1
//
// Which feature stands at which place of a product does not matter, as long as A and x agree. So a
// lane takes 16 bytes as they lie in memory, and two products of 16 features use them up.

// Floats from one row to the next; 16 are sums. With four more, the lanes of a warp that store at
// the same time use 32 banks.
constexpr int kRowSumStride = 20;

/// In shared memory: the sums of each warp over its 64 features.
using WarpSums = float[kBlockWarps][kProductTiles]
                      [kProductTileRows * kRowSumStride];  // [warp][8 rows][row][rank]

/// This thread as lane (g, q) of its warp.
__device__ inline int lane_g() { return threadIdx.x % 32 / 4; }
__device__ inline int lane_q() { return threadIdx.x % 4; }

/// Adds the products of 32 features. `low`, `high`: A of the ranks g and g + 8.
template <class T>
__device__ void multiply_block(const uint4& low, const uint4& high, const uint4& x,
                               float (&sum)[4]) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t a[4] = {word(low, 2 * j), word(high, 2 * j), word(low, 2 * j + 1),
                           word(high, 2 * j + 1)};
    mma_m16n8k16<T>(sum, a, word(x, 2 * j), word(x, 2 * j + 1));
  }
}

/// Stores the sums of this lane for the rows [8 tile, 8 tile + 8).
__device__ inline void store_sums(WarpSums& sums, int tile, const float (&sum)[4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float* to = sums[threadIdx.x / 32][tile] + 2 * q * kRowSumStride + g;
  to[0] = sum[0];
  to[kRowSumStride] = sum[1];
  to[8] = sum[2];
  to[kRowSumStride + 8] = sum[3];
}

/// The sum of the eight warps, in order. Thread t has rank t % 16 of row t / 16.
__device__ inline float sum_of_warps(const WarpSums& sums) {
  const int row = threadIdx.x / kTileRanks, rank = threadIdx.x % kTileRanks;
  static_assert(kBlockThreads == kRowTileRows * kTileRanks);
  const float* from =
      sums[0][row / kProductTileRows] + row % kProductTileRows * kRowSumStride + rank;
  constexpr int kWarpStride = sizeof(sums[0]) / sizeof(float);
  float sum = from[0];
#pragma unroll
  for (int k = 1; k < kBlockWarps; ++k) sum += from[k * kWarpStride];
  return sum;
}

}  // namespace heddle::cuda::lora
