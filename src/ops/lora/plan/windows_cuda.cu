#include "cuda/check.h"

#include "ops/lora/device/indices_cuda.h"

namespace heddle::cuda::lora {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

/// Of one adapter, or of all before.
struct Counts {
  int32_t row_tiles, tiles, partials;

  __device__ Counts& operator+=(const Counts& o) {
    row_tiles += o.row_tiles, tiles += o.tiles, partials += o.partials;
    return *this;
  }
};

struct Shared {
  alignas(16) int32_t slot_of[kWindowRows];
  // Of rows that are the first of their adapter: where its row tiles and tiles begin, and the tiles
  // of a row tile.
  int16_t first_row_tile[kWindowRows], num_tiles[kWindowRows];
  int32_t first_tile[kWindowRows];
  Counts warp_totals[kBlockWarps];
};

/// The slot of each row of the window.
__device__ void resolve_slots(const PlanParams& p, Shared& s, int64_t first_row, int num_rows) {
  const int t = static_cast<int>(threadIdx.x);
  const bool has_id = p.slot_ids.data != nullptr && t < num_rows;
  s.slot_of[t] =
      has_id ? valid_slot(read_index(p.slot_ids, first_row + t), p.num_slots) : kNoAdapter;
  __syncthreads();
  if (p.slot_ids.data != nullptr) return;
  for (int i = t; i < p.num_segments; i += kBlockThreads) {
    const int64_t begin = max(read_index(p.seg_starts, i) - first_row, int64_t{0});
    const int64_t end = min(read_index(p.seg_ends, i) - first_row, int64_t{num_rows});
    if (begin >= end) continue;
    const int32_t slot =
        valid_slot(p.seg_slots.data != nullptr ? read_index(p.seg_slots, i) : i, p.num_slots);
    for (int64_t row = begin; row < end; ++row) s.slot_of[row] = slot;
  }
  __syncthreads();
}

/// Where row t stands among the rows of its slot.
struct Place {
  int first, index, count;
};

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

__device__ int32_t lanes_before(int32_t v) {
  const int lane = threadIdx.x % 32;
  int32_t sum = v;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int32_t below = __shfl_up_sync(kAllLanes, sum, d);
    if (lane >= d) sum += below;
  }
  return sum - v;
}

/// Sum over the threads before this one, and over all.
__device__ Counts threads_before(Shared& s, const Counts& c, Counts& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Counts before{lanes_before(c.row_tiles), lanes_before(c.tiles), lanes_before(c.partials)};
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

/// The row tiles and tiles of one adapter but for their rows.
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
    row_tile.row_reciprocal = 0xffffffffu / static_cast<unsigned>(rows) + 1;
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

/// Row t as the index-th row of an adapter whose row tiles and tiles begin at first_row_tile and
/// first_tile.
__device__ void write_row(WindowPlan& plan, int t, int index, int first_row_tile, int first_tile,
                          int num_tiles) {
  const int row_tile = index / kRowTileRows, at = index % kRowTileRows;
  const auto row = static_cast<int16_t>(t);
  plan.row_tiles[first_row_tile + row_tile].rows[at] = row;
  for (int i = 0; i < num_tiles; ++i) {
    plan.tiles[first_tile + row_tile * num_tiles + i].rows[at] = row;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    window_plan_kernel(const __grid_constant__ PlanParams p) {
  __shared__ Shared s;
  const int t = static_cast<int>(threadIdx.x);
  const int64_t first_row = int64_t{blockIdx.x} * p.window_rows;
  const int num_rows = static_cast<int>(min(int64_t{p.window_rows}, p.num_tokens - first_row));
  auto& plan = *reinterpret_cast<WindowPlan*>(p.plans + blockIdx.x * p.plan_bytes);
  resolve_slots(p, s, first_row, num_rows);

  const int slot = s.slot_of[t];
  const Place place = place_of(s, t, num_rows);
  const bool is_first = slot >= 0 && place.first == t;
  Counts counts{0, 0, 0};
  int tiles = 0;
  if (is_first) {
    int64_t rank = p.max_rank;
    if (p.slot_ranks.data != nullptr)
      rank = max(int64_t{0}, min(rank, read_index(p.slot_ranks, slot)));
    tiles = static_cast<int>((rank + kTileRanks - 1) / kTileRanks);
    const int row_tiles = (place.count + kRowTileRows - 1) / kRowTileRows;
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
    plan.is_mixed = is_mixed;
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
  const int64_t windows = (p.num_tokens + p.window_rows - 1) / p.window_rows;
  window_plan_kernel<<<static_cast<unsigned>(windows), kBlockThreads, 0, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
