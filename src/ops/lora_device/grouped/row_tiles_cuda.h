#pragma once

#include "core/math.h"
#include "ops/lora_device/foreign_plan_cuda.h"
#include "ops/lora_device/grouped/grouped_params.h"
#include "ops/lora_device/operands_cuda.h"

namespace heddle::cuda::lora {

/// What the head of the plan says; no row tiles where the plan is foreign.
struct GroupedHead {
  int num_tiles, num_rows;
  uint32_t tag;
  bool is_foreign;

  __device__ explicit GroupedHead(const GroupedParams& p) {
    const int4 head = *reinterpret_cast<const int4*>(p.plan.head);
    tag = static_cast<uint32_t>(head.z);
    is_foreign = lora::is_foreign(tag, p.site.plan_tag);
    num_tiles = is_foreign ? 0 : head.x;
    num_rows = head.y;
  }
  /// Of the last kernel of a call. Threads 0 to num_threads - 1 call it.
  __device__ void refuse_if_foreign(const GroupedParams& p, int thread, int num_threads) const {
    if (!is_foreign) return;
    refuse_plan(p.site, p.site.op(), p.site.y_dtype, 0, p.site.num_rows, tag, thread, num_threads);
  }
  /// The same of all threads of all blocks.
  __device__ void refuse_if_foreign(const GroupedParams& p) const {
    refuse_if_foreign(p, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
                      static_cast<int>(gridDim.x * blockDim.x));
  }
};

/// The weights of a slot for a slice, and their rank: 0 where the adapter does not touch the slice.
struct SlotWeights {
  LoraWeight a, b;
  int rank;

  /// num_rank_tiles: of the adapter, as the plan has it.
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

/// Into how many work items shrink cuts the eight chains of a row tile and rank pass: 1, 2, 4 or 8,
/// at most max_split. The choice is the one with which num_blocks blocks end first. An item costs
/// as much as its chains and half a chain more. Example: 16 row tiles on 132 blocks are cut into 8,
/// so 128 blocks work.
__host__ __device__ constexpr int select_split(int tile_passes, int num_blocks, int max_split) {
  int best = 1, least = 0;
  for (int split = 1; split <= kChains; split *= 2) {
    if (split > max_split) break;
    const int waves = ceil_div(tile_passes * split, num_blocks);
    const int cost = waves * (2 * kChains / split + 1);
    if (split == 1 || cost < least) best = split, least = cost;
  }
  return best;
}

static_assert(select_split(64, 132, 8) == 2 && select_split(16, 132, 8) == 8);
static_assert(select_split(128, 132, 8) == 1 && select_split(1000, 132, 4) == 1);

/// How the chains are cut. Shrink and expand find the same, since both compute it from the plan.
struct ChainSplit {
  int split;    // work items of one row tile and rank pass
  int parts;    // sums of h in memory, which are left to be added up
  int subtree;  // chains of a part: 1 or 2

  __device__ ChainSplit(const GroupedParams& p, int num_tiles)
      : split(select_split(num_tiles * p.max_passes, p.shrink_blocks, p.max_split)),
        parts(max(split, kMinSplit)),
        subtree(kChains / parts) {}
};

}  // namespace heddle::cuda::lora
