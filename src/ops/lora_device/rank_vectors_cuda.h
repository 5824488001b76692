#pragma once

#include "cuda/convert_cuda.h"

#include "core/math.h"
#include "ops/lora_device/operands_cuda.h"

namespace heddle::cuda::lora {

// h in shared memory, in the order in which products of decode take it: lane (g, q) loads one
// uint4, which is four ranks of row g, hi and lo.
//
//   up to 16 ranks     lane q has the ranks 4 q + [0, 4): one product
//   more               lane q has the ranks 8 q + [0, 8) of each 32: two products, four each
//
// B comes in the same order (16 bytes are 8 ranks), so nothing is exchanged between lanes.

constexpr int kHBlockRanks = 32;            // ranks of one HBlock
constexpr int kHSteps = kHBlockRanks / 16;  // products of 16 ranks
constexpr int kWideRanks = 64;              // ranks that are loaded at once, of more than 16

/// h of 32 ranks and 16 rows. The words of a vector are {hi of two ranks, hi of the other two, lo,
/// lo}.
using HBlock = uint4[kHSteps][kProductTiles][32];  // [step][8 rows][lane]

/// Puts h of a row and rank where lane (g, q) finds it. is_narrow: the adapter has up to 16 ranks.
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

/// Zeros for the last 16 ranks of a block, which products take though an adapter with `num` ranks
/// may not have them.
__device__ inline void clear_h(HBlock* blocks, bool is_narrow, int num) {
  static_assert(kHBlockRanks == 2 * kTileRanks);
  const int tiles = ceil_div(num, kTileRanks), t = static_cast<int>(threadIdx.x);
  if (is_narrow || tiles % 2 == 0 || t >= kHSteps * kRowTileRows * 2) return;
  const int step = t % kHSteps, row = t / kHSteps % kRowTileRows,
            q = 2 + t / (kHSteps * kRowTileRows);
  blocks[tiles / 2][step][row / kProductTileRows][row % kProductTileRows * 4 + q] = {0, 0, 0, 0};
}

}  // namespace heddle::cuda::lora
