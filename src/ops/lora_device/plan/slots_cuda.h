#pragma once

#include "core/math.h"
#include "ops/lora_device/operands_cuda.h"
#include "ops/lora_device/plan/plan_params.h"
#include "ops/lora_device/valid_slot_cuda.h"

namespace heddle::cuda::lora {

// What both plan kernels ask of a batch: the slot of each row, and the rank of a slot. A plan is
// made by one block (of each window, or of the whole batch), so all of this is for the threads of a
// block.

/// slots[i] = the slot of row first_row + i for i < num_rows, or kNoAdapter. All kThreads threads
/// of the block call it, and see all slots afterwards.
///
/// Segments: a lane reads the bounds of one segment, so that all are loaded at the same time. Then
/// its warp writes the rows of the warp's segments, one segment after the other, 32 rows at a time.
/// Neighbouring segments belong to different warps, so a few long ones are shared out:
///
///   segment   0  1  2 ... 31 | 32 33 34 ... 63 | ...        of a block of 32 warps
///   warp      0  1  2 ... 31 |  0  1  2 ... 31 | ...
///
/// kOneRowEach: num_rows is at most kThreads, and the slots behind the last row become kNoAdapter.
template <int kThreads, bool kOneRowEach = false>
__device__ void resolve_slots(const PlanParams& p, int64_t first_row, int64_t num_rows,
                              int32_t* slots) {
  constexpr int kWarps = kThreads / 32;
  const bool has_ids = p.rows.slot_ids.is_given();
  const auto slot_by_id = [&](int64_t i) {
    return valid_slot(p.rows.slot_ids.at(first_row + i), p.rows.num_slots);
  };
  if constexpr (kOneRowEach) {
    const int t = static_cast<int>(threadIdx.x);
    slots[t] = has_ids && t < num_rows ? slot_by_id(t) : kNoAdapter;
  } else {
    for (int64_t i = threadIdx.x; i < num_rows; i += kThreads) {
      slots[i] = has_ids ? slot_by_id(i) : kNoAdapter;
    }
  }
  __syncthreads();
  if (has_ids) return;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int base = 0; base < p.rows.num_segments; base += kThreads) {
    const int segment = base + lane * kWarps + warp;
    int64_t begin = 0, end = 0;
    int32_t slot = kNoAdapter;
    if (segment < p.rows.num_segments) {
      const int64_t start = p.rows.seg_starts.at(segment);
      begin = max(start - first_row, int64_t{0});
      end = min(p.rows.end(segment, start) - first_row, num_rows);
      slot = slot_of_segment(p.rows, segment);
    }
    for (unsigned rest = __ballot_sync(kAllLanes, begin < end); rest != 0; rest &= rest - 1) {
      const int of_lane = __ffs(static_cast<int>(rest)) - 1;
      const int64_t last = __shfl_sync(kAllLanes, end, of_lane);
      const int32_t of_segment = __shfl_sync(kAllLanes, slot, of_lane);
      for (int64_t i = __shfl_sync(kAllLanes, begin, of_lane) + lane; i < last; i += 32) {
        slots[i] = of_segment;
      }
    }
  }
  __syncthreads();
}

/// Rank tiles of a slot: by its largest rank at any site, where the caller gave slot_ranks.
__device__ inline int rank_tiles_of(const PlanParams& p, int slot) {
  int64_t rank = p.max_rank;
  if (p.slot_ranks.is_given()) {
    rank = max(int64_t{0}, min(rank, p.slot_ranks.at(slot)));
  }
  return static_cast<int>(ceil_div(rank, kTileRanks));
}

/// The sum over this lane and the lanes before it.
__device__ inline int32_t sum_up_to_lane(int32_t v) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int32_t below = __shfl_up_sync(kAllLanes, v, d);
    if (lane >= d) v += below;
  }
  return v;
}

}  // namespace heddle::cuda::lora
