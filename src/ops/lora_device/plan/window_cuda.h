#pragma once

#include "core/math.h"
#include "ops/lora_device/plan/slots_cuda.h"
#include "ops/lora_device/window_plan.h"

namespace heddle::cuda::lora::window_plan {

/// What an adapter adds to the plan, or all adapters before it.
struct Counts {
  int32_t row_tiles, tiles, partials;

  __device__ Counts& operator+=(const Counts& o) {
    row_tiles += o.row_tiles, tiles += o.tiles, partials += o.partials;
    return *this;
  }
};

struct WindowShared {
  alignas(16) int32_t slot_of[kWindowRows];  // of each row
  // Of the rows of each warp: their slots, each once, and which lanes have it. After the last one
  // up to a multiple of four: kNoAdapter.
  alignas(16) int32_t slots[kBlockWarps][32];
  uint32_t lanes[kBlockWarps][32];
  int32_t num_slots[kBlockWarps];
  // At the first row of each adapter: where its row tiles, rank tiles and partial sums begin, and
  // how many rank tiles a row tile has.
  int16_t first_row_tile[kWindowRows], num_tiles[kWindowRows];
  int32_t first_tile[kWindowRows], first_partial[kWindowRows];
  Counts warp_totals[kBlockWarps];
};

/// The place of a row among those of its slot: the first of them, its index, their number.
struct Place {
  int first, index, count;
};

/// The place of row t, found among the slots of each warp, four at a time. Unlike the counting sort
/// of the grouped plan this needs no counters, so the number of slots does not matter. All threads
/// call it.
__device__ inline Place place_of(WindowShared& s, int t, int num_rows) {
  const int slot = s.slot_of[t], warp = t / 32, lane = t % 32;
  const unsigned before = (1u << lane) - 1, same = __match_any_sync(kAllLanes, slot);
  const unsigned first_ones = __ballot_sync(kAllLanes, slot >= 0 && (same & before) == 0);
  const int num_slots = __popc(first_ones);
  if ((first_ones & 1u << lane) != 0) {
    const int at = __popc(first_ones & before);
    s.slots[warp][at] = slot, s.lanes[warp][at] = same;
  }
  if (lane >= num_slots) s.slots[warp][lane] = kNoAdapter;
  if (lane == 0) s.num_slots[warp] = num_slots;
  __syncthreads();
  Place place{t, 0, 0};
  if (slot < 0) return place;
  for (int w = 0; w < ceil_div(num_rows, 32); ++w) {
    for (int i = 0; i < s.num_slots[w]; i += 4) {
      const int4 four = *reinterpret_cast<const int4*>(&s.slots[w][i]);
      const int at = four.x == slot ? 0 : four.y == slot ? 1 : four.z == slot ? 2 : 3;
      if (at == 3 && four.w != slot) continue;
      const unsigned lanes = s.lanes[w][i + at];
      if (place.count == 0) place.first = w * 32 + __ffs(static_cast<int>(lanes)) - 1;
      if (w < warp) place.index += __popc(lanes);
      place.count += __popc(lanes);
      break;
    }
  }
  place.index += __popc(same & before);
  return place;
}

/// The sum over the threads before this one. `total` becomes that over all threads.
__device__ inline Counts threads_before(WindowShared& s, const Counts& c, Counts& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Counts before{sum_up_to_lane(c.row_tiles) - c.row_tiles, sum_up_to_lane(c.tiles) - c.tiles,
                sum_up_to_lane(c.partials) - c.partials};
  if (lane == 31) {
    s.warp_totals[warp] = before;
    s.warp_totals[warp] += c;
  }
  __syncthreads();
  total = {0, 0, 0};
  for (int w = 0; w < kBlockWarps; ++w) {
    if (w == warp) before += total;
    total += s.warp_totals[w];
  }
  return before;
}

/// Writes a row tile and its rank tiles, except for their rows. before: what precedes it.
__device__ inline void write_row_tile(WindowPlan& plan, int slot, int num_rows, int num_tiles,
                                      Counts before) {
  RowTile& row_tile = plan.row_tiles[before.row_tiles];
  row_tile.slot = slot;
  row_tile.num_rows = static_cast<int16_t>(num_rows);
  row_tile.num_tiles = static_cast<int16_t>(num_tiles);
  row_tile.first_tile = before.tiles;
  row_tile.first_partial = before.partials;
  row_tile.row_reciprocal = Reciprocal(static_cast<uint32_t>(num_rows));
  for (int i = 0; i < num_tiles; ++i) {
    RankTile& tile = plan.tiles[before.tiles + i];
    tile.slot = slot;
    tile.num_rows = static_cast<int16_t>(num_rows);
    tile.tile = static_cast<int16_t>(i);
    tile.first_partial = before.partials + i * num_rows;
  }
}

/// Writes row t, the index-th row of its adapter, into the row tiles and rank tiles of the adapter.
__device__ inline void write_row(WindowPlan& plan, int t, int index, int first_row_tile,
                                 int first_tile, int num_tiles) {
  const int row_tile = index / kRowTileRows, at = index % kRowTileRows;
  const auto row = static_cast<int16_t>(t);
  plan.row_tiles[first_row_tile + row_tile].rows[at] = row;
  for (int i = 0; i < num_tiles; ++i) {
    plan.tiles[first_tile + row_tile * num_tiles + i].rows[at] = row;
  }
}

// The plan of a window of up to 256 rows. kBlockThreads threads of a block call it, a thread for
// each row; there are no others, or they have ended.
//
//   slot of each row > place among the rows of its slot > the thread of an adapter's first row
//   counts its tiles > that of a row tile's first row writes the tile > each thread writes its row
__device__ inline void plan_window(const PlanParams& p, int window, WindowShared& s) {
  const int t = static_cast<int>(threadIdx.x);
  const int64_t first_row = int64_t{window} * p.window_rows;
  const int num_rows = static_cast<int>(min(int64_t{p.window_rows}, p.num_tokens - first_row));
  auto& plan = *reinterpret_cast<WindowPlan*>(p.plans + window * p.plan_bytes);
  resolve_slots<kBlockThreads, true>(p, first_row, num_rows, s.slot_of);

  const int slot = s.slot_of[t];
  const Place place = place_of(s, t, num_rows);
  const bool is_first = slot >= 0 && place.first == t;
  Counts counts{0, 0, 0};
  int tiles = 0;
  if (is_first) {
    tiles = rank_tiles_of(p, slot);
    const int row_tiles = ceil_div(place.count, kRowTileRows);
    counts = {row_tiles, row_tiles * tiles, place.count * tiles};
  }
  Counts total;
  const Counts before = threads_before(s, counts, total);
  if (is_first) {
    s.first_row_tile[t] = static_cast<int16_t>(before.row_tiles);
    s.first_tile[t] = before.tiles;
    s.first_partial[t] = before.partials;
    s.num_tiles[t] = static_cast<int16_t>(tiles);
  }
  const bool is_mixed = __syncthreads_or(is_first && tiles * total.row_tiles != total.tiles);
  if (t == 0) {
    plan.tag = p.tag | (is_mixed ? kMixedBit : 0);
    plan.num_row_tiles = total.row_tiles;
    plan.num_tiles = total.tiles;
    plan.num_partials = total.partials;
  }
  if (slot < 0) return;
  const int first_row_tile = s.first_row_tile[place.first], first_tile = s.first_tile[place.first];
  const int num_tiles = s.num_tiles[place.first];
  if (place.index % kRowTileRows == 0) {
    const int row_tile = place.index / kRowTileRows;
    const int rows = min(kRowTileRows, place.count - place.index);
    write_row_tile(plan, slot, rows, num_tiles,
                   {first_row_tile + row_tile, first_tile + row_tile * num_tiles,
                    s.first_partial[place.first] + place.index * num_tiles});
  }
  write_row(plan, t, place.index, first_row_tile, first_tile, num_tiles);
}

}  // namespace heddle::cuda::lora::window_plan
