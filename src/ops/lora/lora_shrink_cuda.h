#pragma once

#include "ops/lora/lora_site_cuda.h"

namespace heddle::cuda {

/// 16 ranks times 512 features of one adapter's A, times up to kLoraPartRows rows of x.
struct ShrinkUnit {
  const LoraTile& tile;
  int slice, chunk;
};

__device__ inline ShrinkUnit shrink_unit(const LoraParams& p, int item) {
  const int rest = divide(item, p.chunk_reciprocal);
  const int tile = divide(rest, p.slice_reciprocal);
  return {p.plan->tiles[tile], rest - tile * p.num_slices, item - rest * p.num_chunks};
}

/// First feature of this lane in block 0 of the unit's chunk; that of block 1 is 32 behind.
__device__ inline int first_feature(int chunk) {
  return chunk * kLoraChunk + static_cast<int>(threadIdx.x / 32 * 64 + threadIdx.x % 4 * 8);
}

/// Row g of a tile of x at the features 8 q + [0, 8) and 32 + 8 q + [0, 8) of the warp's 64.
template <class T, bool kPlain>
__device__ void fetch_rows(const LoraParams& p, const ShrinkUnit& u, int tile, uint4* to) {
  const int i = tile * kTileRows + static_cast<int>(threadIdx.x % 32 / 4);
  const bool is_row = i < u.tile.num_rows;
  LoraWeight rows;
  rows.data = p.u;
  rows.row_stride = p.u_stride;
  LoraOperand<T> x(rows, false, 16);
  x.in_lines = p.is_u_aligned;
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const int64_t k = first_feature(u.chunk) + 32 * block;
    fetch_8<kPlain>(to + block * kLoraThreads, x, is_row ? u.tile.rows[i] : 0, k,
                    is_row ? p.in_features - k : 0);
  }
}

/// Of lane (g, q): ranks g and g + 8 of A at those features, vectors 0 to 3, and row g of x, vectors 4 and 5.
template <class T, bool kPlain>
__device__ void fetch_shrink(const LoraParams& p, const ShrinkUnit& u, LoraSlot& slot) {
  const LoraWeight weight = read_weight(p.a, u.tile.slot, u.slice);
  const LoraOperand<T> a(weight, p.is_transposed_a, 16);
  const int rank = weight.data == nullptr ? 0 : weight.rank;
  uint4* to = &slot[0][threadIdx.x];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m = u.tile.tile * kLoraRankTile + static_cast<int>(threadIdx.x % 32 / 4) + 8 * half;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const int64_t k = first_feature(u.chunk) + 32 * block;
      fetch_8<kPlain>(to + (2 * half + block) * kLoraThreads, a, m, k,
                      m < rank ? p.in_features - k : 0);
    }
  }
  fetch_rows<T, kPlain>(p, u, 0, to + 4 * kLoraThreads);
}

/// Writes the partial sums of a unit that was fetched. All threads of the block call it; `parity` alternates from unit to
/// unit.
template <class T, bool kFlagged, bool kPlain>
__device__ void run_shrink(const LoraParams& p, LoraShared& s, const ShrinkUnit& u, LoraSlot& slot,
                           int parity) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, warp = threadIdx.x / 32;
  uint4* mine = &slot[0][threadIdx.x];
#pragma unroll 1
  for (int tile = 0; tile * kTileRows < u.tile.num_rows; ++tile) {
    if (tile > 0) {
      fetch_rows<T, kPlain>(p, u, tile, mine + 4 * kLoraThreads);
      commit_copies();
      wait_for_copies<0>();
    }
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4 low = mine[block * kLoraThreads], high = mine[(2 + block) * kLoraThreads];
      const uint4 x = mine[(4 + block) * kLoraThreads];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t a[4] = {word(low, 2 * j), word(high, 2 * j), word(low, 2 * j + 1),
                               word(high, 2 * j + 1)};
        mma_m16n8k16<T>(sum, a, word(x, 2 * j), word(x, 2 * j + 1));
      }
    }
    float* sums = s.sums[parity][warp][tile] + 2 * q * kRowSumStride + g;
    sums[0] = sum[0];
    sums[kRowSumStride] = sum[1];
    sums[8] = sum[2];
    sums[kRowSumStride + 8] = sum[3];
  }
  __syncthreads();
  const int row = threadIdx.x / kLoraRankTile, rank = threadIdx.x % kLoraRankTile;
  static_assert(kLoraThreads == kLoraPartRows * kLoraRankTile);
  if (row >= u.tile.num_rows) return;
  const float* sums =
      s.sums[parity][0][row / kTileRows] + row % kTileRows * kRowSumStride + rank;
  constexpr int kWarpStride = sizeof(s.sums[0][0]) / sizeof(float);
  float sum = sums[0];
#pragma unroll
  for (int k = 1; k < kLoraWarps; ++k) sum += sums[k * kWarpStride];
  const int64_t to =
      partial_index(p, u.slice, u.chunk, u.tile.first_partial) + static_cast<int>(threadIdx.x);
  if constexpr (kFlagged) {
    publish(static_cast<FlaggedWord*>(p.partials) + to, {sum, s.flag});
  } else {
    static_cast<float*>(p.partials)[to] = sum;
  }
}

}  // namespace heddle::cuda
