#pragma once

#include "cuda/mma_cuda.h"

#include "ops/lora/device/operands_cuda.h"

namespace heddle::cuda::lora {

// Sums of one row tile lie this far apart in shared memory: no two lanes of a warp meet in a bank.
constexpr int kRowSumStride = 20;

/// Sums over the 64 features of each warp: of 16 ranks and up to 16 rows.
using WarpSums = float[kBlockWarps][kProductTiles][kProductTileRows * kRowSumStride];

/// Adds 32 features of 16 ranks and a tile of rows; lane (g, q) has the features 8 q + [0, 8) of the ranks g and g + 8 and of
/// row g.
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

__device__ inline void store_sums(WarpSums& sums, int tile, const float (&sum)[4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float* to = sums[threadIdx.x / 32][tile] + 2 * q * kRowSumStride + g;
  to[0] = sum[0];
  to[kRowSumStride] = sum[1];
  to[8] = sum[2];
  to[kRowSumStride + 8] = sum[3];
}

/// The sum of the warps, in order, of the row and rank of this thread.
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
