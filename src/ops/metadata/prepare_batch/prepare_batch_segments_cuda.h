#pragma once

#include "ops/metadata/prepare_batch/prepare_batch_plan_cuda.h"

namespace heddle::cuda::metadata {

template <int kWarps>
struct SegmentScratch {
  int last_of_warp[kWarps];  // the last request of each warp that has rows, or -1
  int begun_by_warp[kWarps];
  uint32_t overflow_of_warp[kWarps];
};
/// Runs of rows of one adapter in the windows so far, and what did not fit.
template <class Number>
struct BatchSegments {
  int64_t count = 0;
  Number last_slot = -1;
  uint32_t overflow = 0;
};

// The segment outputs. Requests without rows end no run. All threads.
template <class P, int kWarps>
__device__ void write_segments(const P& p, const BatchWindow<P>& plan, typename P::Place num_tokens,
                               bool is_last_window, SegmentScratch<kWarps>& scratch,
                               BatchSegments<typename P::Number>& segments) {
  const int r = threadIdx.x, lane = r % 32, warp = r / 32;
  const unsigned lower = (1u << lane) - 1;
  const auto last_in = [](unsigned lanes) { return 31 - __clz(static_cast<int>(lanes)); };
  const bool has_rows = plan.slot_tokens[r].tokens > 0;
  const unsigned with_rows = __ballot_sync(kAllLanes, has_rows);
  if (lane == 0) scratch.last_of_warp[warp] = with_rows == 0 ? -1 : warp * 32 + last_in(with_rows);
  __syncthreads();
  int previous = -1, last = -1;  // requests with rows: before this one, and of all
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int of_warp = scratch.last_of_warp[w];
    if (of_warp >= 0 && w < warp) previous = of_warp;
    if (of_warp >= 0) last = of_warp;
  }
  if ((with_rows & lower) != 0) previous = warp * 32 + last_in(with_rows & lower);
  const typename P::Number slot = plan.slot[r],
                           slot_before = previous >= 0 ? plan.slot[previous] : segments.last_slot;
  const bool changes = has_rows && slot != slot_before;
  const bool begins = changes && slot >= 0, ends = changes && slot_before >= 0;
  const unsigned begun = __ballot_sync(kAllLanes, begins);
  if (lane == 0) scratch.begun_by_warp[warp] = __popc(begun);
  __syncthreads();
  int64_t index = segments.count + __popc(begun & lower);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) index += scratch.begun_by_warp[w];
    segments.count += scratch.begun_by_warp[w];
  }
  if (begins && index < p.num_segments) {
    p.seg_starts.set(index, plan.first_token[r]);
    p.seg_slots.set(index, slot);
  }
  if (ends && index - 1 < p.num_segments) p.seg_ends.set(index - 1, plan.first_token[r]);
  // Where the last run goes on in the next window, another end is written there.
  const int64_t open = segments.count - 1;
  if (r == last && slot >= 0 && open < p.num_segments) p.seg_ends.set(open, num_tokens);
  if (P::Tensors::kHasWindows && last >= 0) segments.last_slot = plan.slot[last];
  if (!is_last_window || !p.has_segments) return;  // or there are no outputs
  for (int64_t i = segments.count + r; i < p.num_segments; i += P::Tensors::kThreads) {
    p.seg_starts.set(i, 0);
    p.seg_ends.set(i, 0);
    p.seg_slots.set(i, -1);
  }
}

}  // namespace heddle::cuda::metadata
