#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/lora_device/plan/grouped_plan.h"
#include "ops/lora_device/plan/window_cuda.h"

namespace heddle::cuda::lora {
namespace {

constexpr int kPlanThreads = 1024;
constexpr int kWarps = kPlanThreads / 32;
// The slots of so many rows fit into shared memory.
constexpr int kSharedRows = 8192;

struct PlanShared {
  // Rows of each slot among the rows of each warp, then (summed up) among the rows of the warps
  // before.
  int32_t counts[kWarps][kPlanSlots];
  int32_t first[kPlanSlots];  // where the rows of each slot begin
  int2 warp_totals[kWarps];
  int32_t num_rows;            // that have an adapter
  int32_t slots[kSharedRows];  // of the rows, where these are no more
};

/// Adds the rows of this thread that have an adapter to s.num_rows, which is 0 before.
__device__ void count_rows(PlanShared& s, const int32_t* slots, int64_t num_tokens) {
  int count = 0;
  for (int64_t t = threadIdx.x; t < num_tokens; t += kPlanThreads) count += slots[t] >= 0;
  count = __reduce_add_sync(kAllLanes, count);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(&s.num_rows, count);
}

/// Calls take(row, slot - first_slot, lanes with the same slot) for the rows of this warp, 32 at a
/// time in ascending order. Slots out of range come as -1.
template <class Take>
__device__ void for_each_row(const int32_t* slots, int64_t num_tokens, int first_slot,
                             int num_slots, Take&& take) {
  const int64_t each = ceil_div(num_tokens, kPlanThreads) * 32;
  const int64_t begin = threadIdx.x / 32 * each, end = min(begin + each, num_tokens);
  for (int64_t base = begin; base < end; base += 32) {
    const int64_t t = base + threadIdx.x % 32;
    int slot = t < end ? slots[t] - first_slot : -1;
    if (slot >= num_slots || slot < 0) slot = -1;
    take(static_cast<int32_t>(t), slot, __match_any_sync(kAllLanes, slot));
    __syncwarp();
  }
}

/// The sums over the threads before this one. `total` becomes those over all threads.
__device__ int2 threads_before(PlanShared& s, int2 v, int2& total) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int2 up_to{sum_up_to_lane(v.x), sum_up_to_lane(v.y)};
  if (threadIdx.x % 32 == 31) s.warp_totals[warp] = up_to;
  __syncthreads();
  if (warp == 0) {
    const int2 of_warp = s.warp_totals[threadIdx.x];
    s.warp_totals[threadIdx.x] = {sum_up_to_lane(of_warp.x), sum_up_to_lane(of_warp.y)};
  }
  __syncthreads();
  const int2 before = warp > 0 ? s.warp_totals[warp - 1] : int2{0, 0};
  total = s.warp_totals[kWarps - 1];
  return {before.x + up_to.x - v.x, before.y + up_to.y - v.y};
}

// The plan of the grouped route: a counting sort of all rows by slot, any number of rows and slots.
// Rows of a slot stay in ascending order. One block of 32 warps, warp w has the w-th part of the
// rows. For 512 slots at a time:
//
//   count     counts[w][slot] = rows of the slot among those of warp w
//   sum up    first[slot], counts[w][slot] = rows of the slot among the warps before w
//   place     rows[first[slot] + counts[w][slot]++] = row
//
// Between the last two, thread `slot` cuts the rows of its slot into row tiles.
__device__ void group_rows(const PlanParams& p, PlanShared& s) {
  auto* tiles = reinterpret_cast<GroupedTile*>(p.grouped + kGroupedPlanHead);
  auto* rows = reinterpret_cast<int32_t*>(tiles + p.num_tokens);
  int32_t* const slots = p.num_tokens <= kSharedRows ? s.slots : rows + p.num_tokens;
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, lane = t % 32;
  if (t == 0) s.num_rows = 0;
  resolve_slots<kPlanThreads>(p, 0, p.num_tokens, slots);
  count_rows(s, slots, p.num_tokens);
  int2 done{0, 0};  // rows and tiles of the slots before
  for (int first_slot = 0; first_slot < p.rows.num_slots; first_slot += kPlanSlots) {
    const int num_slots = min(kPlanSlots, p.rows.num_slots - first_slot);
    for (int i = lane; i < num_slots; i += 32) s.counts[warp][i] = 0;
    __syncwarp();
    for_each_row(slots, p.num_tokens, first_slot, num_slots, [&](int, int slot, unsigned same) {
      if (slot >= 0 && lane == __ffs(same) - 1) s.counts[warp][slot] += __popc(same);
    });
    __syncthreads();
    int count = 0;
    if (t < num_slots) {
#pragma unroll 8
      for (int w = 0; w < kWarps; ++w) {
        const int of_warp = s.counts[w][t];
        s.counts[w][t] = count;
        count += of_warp;
      }
    }
    int2 total;
    const int tile_rows = rows_of_tile(s.num_rows);
    const int2 before = threads_before(s, {count, ceil_div(count, tile_rows)}, total);
    if (t < num_slots) {
      const int first = done.x + before.x;
      s.first[t] = first;
      const int num_rank_tiles = count > 0 ? rank_tiles_of(p, first_slot + t) : 0;
      GroupedTile* tile = tiles + done.y + before.y;
      for (int i = 0; i < count; i += tile_rows) {
        *tile++ = {first_slot + t, first + i, min(tile_rows, count - i), num_rank_tiles};
      }
    }
    __syncthreads();
    for_each_row(slots, p.num_tokens, first_slot, num_slots, [&](int row, int slot, unsigned same) {
      int at = 0;
      if (slot >= 0) {
        at = s.counts[warp][slot] + __popc(same & ((1u << lane) - 1));
        rows[s.first[slot] + at] = row;
      }
      __syncwarp();
      if (slot >= 0 && lane == 31 - __clz(static_cast<int>(same))) {
        s.counts[warp][slot] = at + 1;
      }
    });
    done.x += total.x, done.y += total.y;
    __syncthreads();
  }
  if (t == 0) *reinterpret_cast<GroupedPlan*>(p.grouped) = {done.y, done.x, p.tag};
}

// Block 0 groups all rows. Each later block, with fewer threads, groups those of a window, if
// p.num_windows is not 0.
__global__ void __launch_bounds__(kPlanThreads)
    grouped_plan_kernel(const __grid_constant__ PlanParams p) {
  extern __shared__ uint4 memory[];
  if (blockIdx.x == 0) return group_rows(p, *reinterpret_cast<PlanShared*>(memory));
  if (threadIdx.x >= kBlockThreads) return;
  auto& s = *reinterpret_cast<window_plan::WindowShared*>(memory);
  window_plan::plan_window(p, static_cast<int>(blockIdx.x) - 1, s);
}

}  // namespace

void plan_grouped(const PlanParams& p, int device, cudaStream_t stream) {
  constexpr int kBytes = sizeof(PlanShared);
  allow_shared_memory<grouped_plan_kernel, kBytes>(device);
  const auto blocks = static_cast<unsigned>(1 + p.num_windows);
  grouped_plan_kernel<<<blocks, kPlanThreads, kBytes, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
