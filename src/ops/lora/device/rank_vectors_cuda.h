#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora/device/operands_cuda.h"

namespace heddle::cuda::lora {

constexpr int kHBlockRanks = 32;            // ranks of one HBlock
constexpr int kHSteps = kHBlockRanks / 16;  // products of 16 ranks
constexpr int kWideRanks = 64;              // ranks of B in a slot, of adapters with more than 16

/// Of lane (g, q) for one block of ranks and tile of rows: hi of its first two ranks, of its others, lo, lo.
using HBlock = uint4[kHSteps][kProductTiles][32];

/// Puts h[row][rank] as hi + lo where lane (g, q) of the products finds it.
template <class T>
__device__ void store_h(HBlock* blocks, bool is_narrow, int row, int rank, float h) {
  const int block = rank / kHBlockRanks;
  rank %= kHBlockRanks;
  const int q = is_narrow ? rank / 4 : rank / 8;
  const int step = is_narrow ? 0 : rank % 8 / 4;
  const T hi = narrow<T>(h);
  const T lo = narrow<T>(h - widen(hi));
  T* to = reinterpret_cast<T*>(
      &blocks[block][step][row / kProductTileRows][row % kProductTileRows * 4 + q]);
  to[rank % 4] = hi;
  to[4 + rank % 4] = lo;
}

/// Zeros for the last 16 ranks of a block that the products take, but the adapter does not have.
__device__ inline void clear_h(HBlock* blocks, bool is_narrow, int num) {
  static_assert(kHBlockRanks == 2 * kTileRanks);
  const int tiles = (num + kTileRanks - 1) / kTileRanks, t = static_cast<int>(threadIdx.x);
  if (is_narrow || tiles % 2 == 0 || t >= kHSteps * kRowTileRows * 2) return;
  const int step = t % kHSteps, row = t / kHSteps % kRowTileRows,
            q = 2 + t / (kHSteps * kRowTileRows);
  blocks[tiles / 2][step][row / kProductTileRows][row % kProductTileRows * 4 + q] = {0, 0, 0, 0};
}

}  // namespace heddle::cuda::lora
