#pragma once

#include "core/math.h"
#include "ops/lora/halves/half_params.h"
#include "ops/lora_device/operands_cuda.h"
#include "ops/lora_device/valid_slot_cuda.h"

namespace heddle::cuda::lora {

// A call of few rows with ids and without a plan: each block groups the rows itself. That takes it
// no longer than it would wait for a plan, and there is no launch for one.
//
//   slot of each row > its place among the rows of its slot > each 16th of them begins a row tile
//
// All blocks of all launches find the same tiles in the same order: that of their first rows.

/// A row tile: where its rows begin among the rows of all tiles, and how many there are.
struct OwnTile {
  int32_t slot;
  int16_t first, num_rows;
};

struct OwnPlan {
  OwnTile tiles[kWindowRows];
  // Of all tiles, one after the other; of the last tile, too, 16 can be read.
  uint8_t rows[kWindowRows + kRowTileRows];
};

/// What is needed until the plan is made.
struct OwnPlanScratch {
  alignas(16) int32_t slot_of[kWindowRows];  // of each row
  int32_t warp_totals[kBlockWarps];
  uint8_t first_of[kWindowRows];  // of the tile that begins with a row: its first
};
static_assert(kWindowRows == kBlockThreads && kWindowRows <= 256);

/// Groups the rows of the window. Returns the number of row tiles. All threads call it.
__device__ __noinline__ int make_own_plan(const HalfParams& p, OwnPlan& plan, OwnPlanScratch& s) {
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, lane = t % 32;
  s.slot_of[t] = t < p.num_rows ? valid_slot(p.rows.slot_ids.at(p.first_row + t), p.rows.num_slots)
                                : kNoAdapter;
  __syncthreads();
  // Of the rows of this row's slot: its own index, the row that begins its tile, and their number.
  const int slot = s.slot_of[t];
  int index = 0, leader = t, count = 0;
  if (slot >= 0) {
    const auto look = [&](int other, int u) {
      if (other != slot) return;
      if (u <= t) {
        index = count;
        if (count % kRowTileRows == 0) leader = u;
      }
      ++count;
    };
    for (int u = 0; u < p.num_rows; u += 4) {
      const int4 four = *reinterpret_cast<const int4*>(&s.slot_of[u]);
      look(four.x, u), look(four.y, u + 1), look(four.z, u + 2), look(four.w, u + 3);
    }
  }
  // Tiles and their rows before this one: both fit 16 bits.
  const int of_tile = slot >= 0 && leader == t ? min(kRowTileRows, count - index) : 0;
  const int own = of_tile > 0 ? of_tile << 16 | 1 : 0;
  int up_to = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int below = __shfl_up_sync(kAllLanes, up_to, d);
    if (lane >= d) up_to += below;
  }
  if (lane == 31) s.warp_totals[warp] = up_to;
  __syncthreads();
  int before = up_to - own, total = 0;
#pragma unroll
  for (int w = 0; w < kBlockWarps; ++w) {
    if (w == warp) before += total;
    total += s.warp_totals[w];
  }
  if (of_tile > 0) {
    const auto first = static_cast<int16_t>(before >> 16);
    plan.tiles[before & 0xffff] = {slot, first, static_cast<int16_t>(of_tile)};
    s.first_of[t] = static_cast<uint8_t>(first);
  }
  __syncthreads();
  if (slot >= 0) plan.rows[s.first_of[leader] + index % kRowTileRows] = static_cast<uint8_t>(t);
  __syncthreads();
  return total & 0xffff;
}

}  // namespace heddle::cuda::lora
