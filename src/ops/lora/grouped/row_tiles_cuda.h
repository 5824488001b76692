#pragma once

#include "ops/lora/device/operands_cuda.h"
#include "ops/lora/grouped/grouped_params.h"

namespace heddle::cuda::lora {

/// Rows of each row tile but the last of an adapter, in a batch of so many.
__device__ inline int rows_of_tile(int num_rows) {
  return num_rows <= kFewRows    ? kGroupedTileFewRows
         : num_rows <= kSomeRows ? kGroupedTileSomeRows
                                 : kGroupedTileRows;
}

/// The weights of a slot for a slice; their rank, 0 where the adapter does not touch the slice.
struct SlotWeights {
  LoraWeight a, b;
  int rank;

  /// Of weights of both halves, and the adapter's rank tiles as the plan says.
  __device__ SlotWeights(const LoraWeight& a, const LoraWeight& b, int num_rank_tiles)
      : a(a), b(b), rank(min(num_rank_tiles * kTileRanks, min(a.rank, b.rank))) {
    if (a.data == nullptr || b.data == nullptr || rank < 0) rank = 0;
  }
  __device__ SlotWeights(const GroupedParams& p, const GroupedTile& tile, int slice) {
    if (p.has_a) a = read_weight(p.site.a, tile.slot, slice);
    if (p.has_b) b = read_weight(p.site.b, tile.slot, slice);
    rank = tile.num_rank_tiles * kTileRanks;
    if (p.has_a) rank = a.data == nullptr ? 0 : min(rank, a.rank);
    if (p.has_b) rank = b.data == nullptr ? 0 : min(rank, b.rank);
    rank = max(rank, 0);
  }
};

/// Parts that work of `tile_passes` row tiles times rank passes is cut into along the chains, at most max_split: the one with which
/// num_blocks blocks end first, where an item costs half a chain beyond its own.
__host__ __device__ constexpr int select_split(int tile_passes, int num_blocks, int max_split) {
  int best = 1, least = 0;
  for (int split = 1; split <= kChains; split *= 2) {
    if (split > max_split) break;
    const int waves = (tile_passes * split + num_blocks - 1) / num_blocks;
    const int cost = waves * (2 * kChains / split + 1);
    if (split == 1 || cost < least) best = split, least = cost;
  }
  return best;
}

static_assert(select_split(64, 132, 8) == 2 && select_split(16, 132, 8) == 8);
static_assert(select_split(128, 132, 8) == 1 && select_split(1000, 132, 4) == 1);

/// How the sums of h are cut along the chains: the same in both kernels.
struct ChainSplit {
  int split;    // items of one row tile and rank pass
  int parts;    // sums that are left to be added
  int subtree;  // chains of each

  __device__ ChainSplit(const GroupedParams& p, int num_tiles)
      : split(select_split(num_tiles * p.max_passes, p.shrink_blocks, p.max_split)),
        parts(max(split, kMinParts)),
        subtree(kChains / parts) {}
};

}  // namespace heddle::cuda::lora
