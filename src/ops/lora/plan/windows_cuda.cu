#include "cuda/check.h"

#include "core/math.h"
#include "ops/lora/plan/slots_cuda.h"

namespace heddle::cuda::lora {
namespace {

/// What an adapter adds to the plan, or all adapters before it.
struct Counts {
  int32_t row_tiles, tiles, partials;

  __device__ Counts& operator+=(const Counts& o) {
    row_tiles += o.row_tiles, tiles += o.tiles, partials += o.partials;
    return *this;
  }
};

struct Shared {
  alignas(16) int32_t slot_of[kWindowRows];  // of each row
  // At the first row of each adapter: where its row tiles and rank tiles begin, and how many rank
  // tiles a row tile has.
  int16_t first_row_tile[kWindowRows], num_tiles[kWindowRows];
  int32_t first_tile[kWindowRows];
  Counts warp_totals[kBlockWarps];
};

/// Where a row stands among the rows of its slot: the first of them, its index, how many there are.
struct Place {
  int first, index, count;
};

/// The place of row t, found by comparing its slot with those of all rows, four at a time. Unlike
/// the counting sort of the grouped plan this needs no counters, so the number of slots does not
/// matter.
__device__ Place place_of(const Shared& s, int t, int num_rows) {
  const int slot = s.slot_of[t];
  Place place{t, 0, 0};
  if (slot < 0) return place;
  const auto look = [&](int other, int u) {
    if (other != slot) return;
    if (place.count == 0) place.first = u;
    place.index += u < t;
    ++place.count;
  };
  for (int u = 0; u < num_rows; u += 4) {
    const int4 four = *reinterpret_cast<const int4*>(&s.slot_of[u]);
    look(four.x, u), look(four.y, u + 1), look(four.z, u + 2), look(four.w, u + 3);
  }
  return place;
}

/// The sum over the threads before this one. `total` becomes that over all threads.
__device__ Counts threads_before(Shared& s, const Counts& c, Counts& total) {
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

/// Writes the row tiles and rank tiles of an adapter, except for their rows.
__device__ void write_adapter(WindowPlan& plan, int slot, int num_rows, int num_tiles,
                              Counts before) {
  for (int done = 0; done < num_rows; done += kRowTileRows) {
    const int rows = min(kRowTileRows, num_rows - done);
    RowTile& row_tile = plan.row_tiles[before.row_tiles++];
    row_tile.slot = slot;
    row_tile.num_rows = static_cast<int16_t>(rows);
    row_tile.num_tiles = static_cast<int16_t>(num_tiles);
    row_tile.first_tile = before.tiles;
    row_tile.first_partial = before.partials;
    row_tile.row_reciprocal = Reciprocal(static_cast<uint32_t>(rows));
    for (int i = 0; i < num_tiles; ++i) {
      RankTile& tile = plan.tiles[before.tiles++];
      tile.slot = slot;
      tile.num_rows = static_cast<int16_t>(rows);
      tile.tile = static_cast<int16_t>(i);
      tile.first_partial = before.partials;
      before.partials += rows;
    }
  }
}

/// Writes row t, the index-th row of its adapter, into the row tiles and rank tiles of the adapter.
__device__ void write_row(WindowPlan& plan, int t, int index, int first_row_tile, int first_tile,
                          int num_tiles) {
  const int row_tile = index / kRowTileRows, at = index % kRowTileRows;
  const auto row = static_cast<int16_t>(t);
  plan.row_tiles[first_row_tile + row_tile].rows[at] = row;
  for (int i = 0; i < num_tiles; ++i) {
    plan.tiles[first_tile + row_tile * num_tiles + i].rows[at] = row;
  }
}

// The plan of windows of up to 256 rows. Grid: one block a window, a thread for each row.
//
//   slot of each row > place among the rows of its slot > the thread of an adapter's first row
//   counts and writes the adapter's tiles > each thread writes its row into them
__global__ void __launch_bounds__(kBlockThreads)
    window_plan_kernel(const __grid_constant__ PlanParams p) {
  __shared__ Shared s;
  const int t = static_cast<int>(threadIdx.x);
  const int64_t first_row = int64_t{blockIdx.x} * p.window_rows;
  const int num_rows = static_cast<int>(min(int64_t{p.window_rows}, p.num_tokens - first_row));
  auto& plan = *reinterpret_cast<WindowPlan*>(p.plans + blockIdx.x * p.plan_bytes);
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
    s.num_tiles[t] = static_cast<int16_t>(tiles);
    write_adapter(plan, slot, place.count, tiles, before);
  }
  const bool is_mixed = __syncthreads_or(is_first && tiles * total.row_tiles != total.tiles);
  if (t == 0) {
    plan.tag = p.tag | (is_mixed ? kMixedBit : 0);
    plan.num_row_tiles = total.row_tiles;
    plan.num_tiles = total.tiles;
    plan.num_partials = total.partials;
  }
  __syncthreads();
  if (slot >= 0) {
    write_row(plan, t, place.index, s.first_row_tile[place.first], s.first_tile[place.first],
              s.num_tiles[place.first]);
  }
}

}  // namespace

void plan_windows(const PlanParams& p, cudaStream_t stream) {
  const int64_t windows = ceil_div(p.num_tokens, p.window_rows);
  window_plan_kernel<<<static_cast<unsigned>(windows), kBlockThreads, 0, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
