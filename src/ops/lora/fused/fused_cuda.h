#pragma once

#include "ops/lora/fused/fused_params.h"
#include "ops/lora_device/shrink_tile_cuda.h"

namespace heddle::cuda::lora {

// What the two fused kernels share: both do all of a lora_apply in one launch. Example, one adapter
// of rank 16, 4 rows, 4096 -> 4096 features:
//
//   shrink   8 work items: each one chunk of 512 features of A (16 ranks) times the 4 rows
//   expand  16 work items: each 256 outputs of B times all ranks of the 4 rows
//
//   block 0     shrink item 0 --> publishes 4 x 16 sums -.    .-> expand item 0 --> y [:, 0:256)
//   block 1     shrink item 1 --> publishes 4 x 16 sums --\  /--> expand item 1 --> y [:, 256:512)
//   ...                                                    \/
//   block 7     shrink item 7 --> publishes 4 x 16 sums ---/\---> expand item 7
//   ...                                                        `-> expand item 15
//
// Every expand item needs the sums of all chunks. They pass through the exchange memory as words
// {value, flag}, written and read as one: a reader polls until the flag is the number of this
// launch. So nothing has to be cleared between launches, and no block waits for more than the words
// it needs.

// The counter of arrivals has the blocks of the current launch in its low 16 bits, and above them
// the number of launches before.
constexpr uint64_t kArrivalBlocks = 1u << 16;

/// Counts this block. The value before tells which launch this is, see flag_of().
__device__ inline uint64_t arrive(uint64_t* arrivals) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), 1ull);
}

/// The block that arrived last counts the launch; `before` is what arrive() returned.
__device__ inline void count_launch(uint64_t before, uint64_t* arrivals) {
  const uint32_t num_blocks = gridDim.x * gridDim.y;
  if (before % kArrivalBlocks == num_blocks - 1) {
    atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), kArrivalBlocks - num_blocks);
  }
}
/// The flag of a launch: its number modulo 2^32 - 1, plus 1. A flag is never 0, since exchange
/// memory begins with zeros. It comes again after 2^32 - 1 launches.
__device__ inline uint32_t flag_of_launch(uint64_t launch) {
  // The remainder is the sum of the upper and the lower half, with the carry added.
  const auto low = static_cast<uint32_t>(launch);
  uint32_t sum = low + static_cast<uint32_t>(launch >> 32);
  sum += sum < low;
  return sum == 0xffffffffu ? 1 : sum + 1;
}
/// Both, for a block that has arrived.
__device__ inline uint32_t flag_of(uint64_t before, uint64_t* arrivals) {
  count_launch(before, arrivals);
  return flag_of_launch(before / kArrivalBlocks);
}

/// A work item of shrink: 16 ranks of A times a chunk of 512 features, for the rows of a row tile.
/// A warp has 64 of the features (lora_device/shrink_tile_cuda.h).
struct ShrinkItem {
  int slot, slice, chunk, num_rows, first_rank;
  int feature;  // the first one of this lane
  int partial;  // where its sums go: row of the partial sums, 16 values each
  int index;    // of the rank tile in the plan
  int row;      // of the window: row g of the row tile

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
  /// Goes on to the next chunk of the same rank tile.
  __device__ void advance(int num_partials) {
    ++chunk;
    feature += kChunkFeatures;
    partial += num_partials;
  }
};

/// What a lane multiplies of 64 features: [first or last 32 features], 8 features each.
struct ShrinkData {
  uint4 low[2], high[2];  // A of the ranks g and g + 8
  uint4 x[2];             // of row g
};

/// Multiplies an item whose first 8 rows have been loaded, and stores the sums of each warp. For
/// the other 8 rows it calls load_x(row of the row tile), which replaces data.x.
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

/// Adds up the sums of the warps and publishes them in the rows of partial sums from `partial` on.
__device__ inline void publish_sums(void* partials, uint32_t flag, int partial, int num_rows,
                                    const WarpSums& sums) {
  const int at = static_cast<int>(threadIdx.x);
  if (at / kTileRanks >= num_rows) return;
  publish(static_cast<FlaggedWord*>(partials) + int64_t{partial} * kTileRanks + at,
          {sum_of_warps(sums), flag});
}

}  // namespace heddle::cuda::lora
