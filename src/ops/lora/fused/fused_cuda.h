#pragma once

#include "ops/lora/device/shrink_tile_cuda.h"

namespace heddle::cuda::lora {

// What both kernels that do all of a lora_apply in one launch are made of: the number of the launch, items of shrink, and the words
// through which blocks hand each other sums.

constexpr uint64_t kArrivalBlocks = 1u << 16;

/// Counts a block that begins. What the counter held says which launch this is.
__device__ inline uint64_t arrive(uint64_t* arrivals) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), 1ull);
}

/// The flag of the launch whose arrivals were `before`; the last of its blocks counts the launch. Never 0, with which
/// memory begins; 2^32 - 1 launches later it comes again.
__device__ inline uint32_t flag_of(uint64_t before, uint64_t* arrivals) {
  const uint32_t num_blocks = gridDim.x * gridDim.y;
  if (before % kArrivalBlocks == num_blocks - 1) {
    atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), kArrivalBlocks - num_blocks);
  }
  // The launch modulo 2^32 - 1, which is the sum of its halves with the carry added, plus 1.
  const uint64_t launch = before / kArrivalBlocks;
  const auto low = static_cast<uint32_t>(launch);
  uint32_t sum = low + static_cast<uint32_t>(launch >> 32);
  sum += sum < low;
  return sum == 0xffffffffu ? 1 : sum + 1;
}

/// Of this thread as products see it: lane (g, q) of a warp.
__device__ inline int lane_g() { return threadIdx.x % 32 / 4; }
__device__ inline int lane_q() { return threadIdx.x % 4; }

/// One item of shrink: 16 ranks times 512 features of A, times the rows of a row tile. A warp has 64 of the features.
struct ShrinkItem {
  int slot, slice, chunk, num_rows, first_rank;
  int feature;  // the first of this lane
  int partial;  // row of partials of the first row
  int index;    // of the tile
  int row;      // g of the row tile

  ShrinkItem() = default;
  __device__ ShrinkItem(const FusedParams& p, const WindowPlan& plan, int num_partials, int item) {
    const int rest = divide(item, p.chunk_reciprocal);
    chunk = item - rest * p.num_chunks;
    index = min(divide(rest, p.slice_reciprocal), p.last_tile);
    const RankTile& tile = plan.tiles[index];
    const int4 head = *reinterpret_cast<const int4*>(&tile);
    slice = rest - index * p.num_slices;
    slot = head.x;
    num_rows = head.y & 0xffff;
    first_rank = (head.y >> 16) * kTileRanks;
    feature = chunk * kChunkFeatures + static_cast<int>(threadIdx.x / 32 * 64) + lane_q() * 8;
    partial = (slice * p.num_chunks + chunk) * num_partials + head.z;
    row = tile.rows[lane_g()];
  }
  /// To the next chunk.
  __device__ void advance(int num_partials) {
    ++chunk;
    feature += kChunkFeatures;
    partial += num_partials;
  }
};

/// 64 features: of the ranks g and g + 8, and of one row.
struct ShrinkData {
  uint4 low[2], high[2], x[2];
};

/// Multiplies an item whose data are on their way: the sums of each warp. load_x(row of the row tile): to data.
template <class T, class LoadX>
__device__ void multiply_tiles(const ShrinkItem& item, ShrinkData& data, WarpSums& sums,
                               LoadX&& load_x) {
#pragma unroll 1
  for (int tile = 0;;) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 2; ++i) multiply_block<T>(data.low[i], data.high[i], data.x[i], sum);
    store_sums(sums, tile, sum);
    if (++tile * kProductTileRows >= item.num_rows) return;
    load_x(tile * kProductTileRows + lane_g());
  }
}

/// Hands the sums of an item to all blocks: those of the rows from row `partial` on.
__device__ inline void publish_sums(void* partials, uint32_t flag, int partial, int num_rows,
                                    const WarpSums& sums) {
  const int at = static_cast<int>(threadIdx.x);
  if (at / kTileRanks >= num_rows) return;
  publish(static_cast<FlaggedWord*>(partials) + int64_t{partial} * kTileRanks + at,
          {sum_of_warps(sums), flag});
}

}  // namespace heddle::cuda::lora
