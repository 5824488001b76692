#pragma once

#include "ops/lora/device/shrink_cuda.h"

namespace heddle::cuda {

// What both kernels that do all of a lora_apply in one launch are made of: the number of the launch, units of shrink, and the words
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

/// One unit of shrink: 16 ranks times 512 features of A, times the rows of a part. A warp has 64 of the features.
struct ShrinkUnit {
  int slot, slice, chunk, num_rows, first_rank;
  int feature;  // the first of this lane
  int partial;  // row of partials of the first row
  int index;    // of the tile
  int row;      // g of the part

  ShrinkUnit() = default;
  __device__ ShrinkUnit(const LoraDirectParams& p, const LoraWindowPlan& plan, int num_partials,
                        int unit) {
    const int rest = divide(unit, p.chunk_reciprocal);
    chunk = unit - rest * p.num_chunks;
    index = min(divide(rest, p.slice_reciprocal), p.last_tile);
    const LoraTile& tile = plan.tiles[index];
    const int4 head = *reinterpret_cast<const int4*>(&tile);
    slice = rest - index * p.num_slices;
    slot = head.x;
    num_rows = head.y & 0xffff;
    first_rank = (head.y >> 16) * kLoraRankTile;
    feature = chunk * kLoraChunk + static_cast<int>(threadIdx.x / 32 * 64) + lane_q() * 8;
    partial = (slice * p.num_chunks + chunk) * num_partials + head.z;
    row = tile.rows[lane_g()];
  }
  /// To the next chunk.
  __device__ void advance(int num_partials) {
    ++chunk;
    feature += kLoraChunk;
    partial += num_partials;
  }
};

/// 64 features: of the ranks g and g + 8, and of one row.
struct ShrinkData {
  uint4 low[2], high[2], x[2];
};

/// Multiplies a unit whose data are on their way: the sums of each warp. load_x(row of the part): to data.
template <class T, class LoadX>
__device__ void multiply_tiles(const ShrinkUnit& unit, ShrinkData& data, LoraTileSums& sums,
                               LoadX&& load_x) {
#pragma unroll 1
  for (int tile = 0;;) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 2; ++i) multiply_block<T>(data.low[i], data.high[i], data.x[i], sum);
    store_sums(sums, tile, sum);
    if (++tile * kTileRows >= unit.num_rows) return;
    load_x(tile * kTileRows + lane_g());
  }
}

/// Hands the sums of a unit to all blocks: those of the rows from row `partial` on.
__device__ inline void publish_sums(void* partials, uint32_t flag, int partial, int num_rows,
                                    const LoraTileSums& sums) {
  const int at = static_cast<int>(threadIdx.x);
  if (at / kLoraRankTile >= num_rows) return;
  publish(static_cast<FlaggedWord*>(partials) + int64_t{partial} * kLoraRankTile + at,
          {sum_of_warps(sums), flag});
}

}  // namespace heddle::cuda
