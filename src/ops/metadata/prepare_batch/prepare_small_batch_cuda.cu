#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"

#include "ops/metadata/prepare_batch/prepare_small_batch_plan_cuda.h"

// prepare_batch for at most as many requests as a block has threads and for extents whose sums fit
// 32 bits: every decode step. Each block plans all requests, one per thread; behind that barrier
// warps share no more. The first block writes what has one entry per request; each warp of the
// others takes a few tokens, or 128 pages or table entries, or a slot.
//
//   block 0         a thread a request: lengths, pages, segments
//   other blocks    8 warps, each a work item after the other
//     warp          1 to 32 tokens, or 128 pages or table entries, or a slot
//       lane        a token, or 4 pages

namespace heddle::cuda::metadata {
namespace {

constexpr int kThreads = kSmallThreads, kWarps = kSmallWarps;

/// Consecutive requests.
struct Rows {
  int first, count;
};
/// Those that have elements [first, last) of a ragged array, of which there is at least one. All
/// lanes.
__device__ Rows rows_of(const int32_t* starts, int first, int last) {
  uint32_t begun = 0;  // at the first element, and 16 bits higher at the last one
#pragma unroll
  for (int r = 0; r < kThreads; r += 32) {
    const int start = starts[r + static_cast<int>(threadIdx.x) % 32];
    begun += (start <= first ? 1u : 0u) + (start < last ? 1u << 16 : 0u);
  }
  begun = __reduce_add_sync(kAllLanes, begun);
  const int row = static_cast<int>(begun & 0xffff) - 1;
  return {row, static_cast<int>(begun >> 16) - row};
}
__device__ int row_within(const int32_t* starts, const Rows& rows, int element) {
  return rows.count <= 1 ? rows.first
                         : rows.first + row_of(starts + rows.first, rows.count, element);
}

/// Rows with an adapter that come before those of request `row` with this slot. All lanes.
template <class Number>
__device__ int adapter_rows_before(const SmallPlan<Number>& plan, uint32_t slot, int row) {
  uint32_t sum = 0;
#pragma unroll
  for (int r = 0; r < kThreads; r += 32) {
    const int other = r + static_cast<int>(threadIdx.x) % 32;
    const uint2 o = plan.slot_tokens[other];
    if (o.x < slot || (o.x == slot && other < row)) sum += o.y;
  }
  return static_cast<int>(__reduce_add_sync(kAllLanes, sum));
}

/// Page `index` of a request; -1, without a read, where it has none.
template <class P>
__device__ LoadedIndex load_page(const P& p, const SmallPlan<typename P::Number>& plan, int row,
                                 typename P::Number index, bool in_range) {
  in_range = in_range && index < plan.num_given[row];
  const bool in_list = p.seq_page_indptr.is_given();
  const auto pages = in_list ? p.seq_pages : p.seq_page_table.row_given(row);
  const LoadedIndex page =
      load_input(pages, index + (in_list ? plan.given_begin[row] : 0), in_range);
  return in_range ? page : LoadedIndex::of(-1);
}

/// Where the rows of each of up to 32 requests from `first` on begin in adapter_rows: that of
/// request first + i in lane i. All lanes. One sum over the requests in front for each slot that
/// these have.
template <class Number>
__device__ int adapter_places(const SmallPlan<Number>& plan, int first, int count) {
  const int lane = threadIdx.x % 32;
  const uint2 own = lane < count ? plan.slot_tokens[first + lane] : uint2{~0u, 0};
  int place = 0;
  unsigned left = __ballot_sync(kAllLanes, static_cast<int32_t>(own.x) >= 0 && own.y > 0);
  while (left != 0) {
    const uint32_t slot = __shfl_sync(kAllLanes, own.x, __ffs(static_cast<int>(left)) - 1);
    const int before = adapter_rows_before(plan, slot, first);
    const bool is_mine = own.x == slot;
    uint32_t sum = is_mine ? own.y : 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (is_mine) place = before + static_cast<int>(sum - own.y);
    left &= ~__ballot_sync(kAllLanes, is_mine);
  }
  return place;
}

// Token `token` of the batch, of request `row`.
template <class P>
__device__ void write_token(const P& p, const SmallPlan<typename P::Number>& plan, int row,
                            int token) {
  const int j = token - plan.first_token[row];
  using Number = typename P::Number;
  const Number position = plan.start[row] + j, slot = plan.slot[row];
  Number index = 0, place = 0;  // of the page, and in it
  LoadedIndex page;
  if (p.kv_slots.is_given()) {
    index = pages_in(p, position);
    place = position - index * p.page_size;
    page = load_page(p, plan, row, index, true);
  }
  bool is_brought = false;
  Number from = 0;
  if (p.next_input_ids.is_given()) {
    from = plan.next_begin[row] + j;
    is_brought = from < plan.next_end[row] && from >= 0 && from < p.num_next_ids &&
                 position >= plan.prompt[row];
  }
  const bool has_place = p.all_input_ids.is_given() && position < p.max_length;
  const auto ids = p.all_input_ids.row_given(row);
  LoadedIndex id = LoadedIndex::of(p.pad_token);
  if (is_brought) {
    id = load_input(p.next_input_ids, from);
  } else if (has_place && p.input_ids.is_given()) {
    id = load_input(ids, position);
  }
  p.positions.set(token, position);
  p.token_to_seq.set(token, row);
  p.slot_ids.set(token, slot);
  if (p.kv_slots.is_given()) {
    const int64_t number = page.value();
    p.kv_slots.set_given(
        token, number >= 0 && number < p.page_end ? number * int64_t{p.page_size} + place : -1);
  }
  p.input_ids.set(token, id.value());
  if (is_brought && has_place) ids.set_given(position, id.value());
}

/// A warp's tokens: those up to `last` are there, behind it is padding.
struct TokenSpan {
  int first, last, end, own;  // `own` is the lane's

  template <class P>
  static __device__ TokenSpan of(const P& p, const SmallTotals& totals, int item) {
    using Number = typename P::Number;
    const int per_warp = static_cast<int>(p.items.tokens_per_item), first = item * per_warp;
    const auto end = static_cast<int>(smaller(static_cast<Number>(first + per_warp), p.num_tokens));
    return {first, smaller(end, totals.tokens), end, first + static_cast<int>(threadIdx.x) % 32};
  }
};

template <class P>
__device__ void write_tokens(const P& p, const SmallPlan<typename P::Number>& plan,
                             const SmallTotals& totals, int item) {
  const TokenSpan span = TokenSpan::of(p, totals, item);
  const int token = span.own;
  if (span.first < span.last) {
    const Rows rows = rows_of(plan.first_token, span.first, span.last);
    if (token < span.last) write_token(p, plan, row_within(plan.first_token, rows, token), token);
  }
  if (token < span.last || token >= span.end) return;
  p.positions.set(token, 0);
  p.kv_slots.set(token, -1);
  p.token_to_seq.set(token, -1);
  p.input_ids.set(token, p.pad_token);
  p.slot_ids.set(token, -1);
}

template <class P>
__device__ void write_adapter_rows(const P& p, const SmallPlan<typename P::Number>& plan,
                                   const SmallTotals& totals, int item) {
  const TokenSpan span = TokenSpan::of(p, totals, item);
  const int token = span.own;
  if (span.first < span.last) {
    const Rows rows = rows_of(plan.first_token, span.first, span.last);
    const int row = row_within(plan.first_token, rows, token);
    for (int first_row = 0; first_row < rows.count; first_row += 32) {
      const int places =
          adapter_places(plan, rows.first + first_row, smaller(32, rows.count - first_row));
      const int of_lane = row - rows.first - first_row;
      const int place = __shfl_sync(kAllLanes, places, of_lane & 31);
      if (of_lane < 0 || of_lane >= 32 || token >= span.last || plan.slot[row] < 0) continue;
      p.adapter_rows.set_given(place + token - plan.first_token[row], token);
    }
  }
  if (token < span.end && token >= totals.adapter_rows) p.adapter_rows.set_given(token, -1);
}

constexpr int kPerLane = static_cast<int>(kSmallPagesPerItem) / 32;

template <class P>
__device__ void write_pages(const P& p, const SmallPlan<typename P::Number>& plan,
                            const SmallTotals& totals, int item) {
  const int first = item * static_cast<int>(kSmallPagesPerItem);
  const int begin = first + static_cast<int>(threadIdx.x) % 32;
  const int end =
      static_cast<int>(smaller(int64_t{first} + kSmallPagesPerItem, int64_t{p.max_pages}));
  const int last = end < totals.pages ? end : totals.pages;
  LoadedIndex page[kPerLane];
  if (first < last) {
    const Rows rows = rows_of(plan.first_page, first, last);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int i = begin + k * 32, row = row_within(plan.first_page, rows, i);
      page[k] = load_page(p, plan, row, i - plan.first_page[row], i < last);
    }
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int i = begin + k * 32;
    if (i < end) p.pages.set_given(i, i < last ? page[k].value() : p.pad_page);
  }
}

template <class P>
__device__ void write_table(const P& p, const SmallPlan<typename P::Number>& plan, int item) {
  const auto width = static_cast<uint32_t>(p.table_width);
  const uint32_t end = static_cast<uint32_t>(p.num_seqs) * width;
  const uint32_t begin = static_cast<uint32_t>(item) * kSmallPagesPerItem + threadIdx.x % 32;
  LoadedIndex page[kPerLane];
  uint32_t row[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint32_t i = begin + k * 32;
    row[k] = i < end ? i / width : 0;
    const int column = static_cast<int>(i - row[k] * width), r = static_cast<int>(row[k]);
    const bool in_range = i < end && column < plan.first_page[r + 1] - plan.first_page[r];
    page[k] = load_page(p, plan, r, column, in_range);
    if (!in_range) page[k] = LoadedIndex::of(p.pad_page);
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint32_t i = begin + k * 32;
    if (i < end)
      p.page_table.row_given(static_cast<int>(row[k]))
          .set_given(i - row[k] * width, page[k].value());
  }
}

// An entry of adapter_indptr.
template <class P>
__device__ void write_slot(const P& p, const SmallPlan<typename P::Number>& plan, int slot) {
  const int before = adapter_rows_before(plan, static_cast<uint32_t>(slot), 0);
  if (threadIdx.x % 32 == 0) p.adapter_indptr.set_given(slot, before);
}

/// What begins or ends at a request: runs of rows of one adapter.
struct SegmentScratch {
  int last_of_warp[kWarps];  // the last request of each warp that has rows, or -1
  int begun_by_warp[kWarps];
  uint32_t overflow_of_warp[kWarps];
};

// The segment outputs; how many segments there are. Requests without rows end no run. All threads.
template <class P>
__device__ int64_t write_segments(const P& p, const SmallPlan<typename P::Number>& plan,
                                  int32_t num_tokens, SegmentScratch& scratch) {
  const int r = threadIdx.x, lane = r % 32, warp = r / 32;
  const unsigned lower = (1u << lane) - 1;
  const auto last_in = [](unsigned lanes) { return 31 - __clz(static_cast<int>(lanes)); };
  const bool has_rows = plan.slot_tokens[r].y > 0;
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
                           slot_before = previous >= 0 ? plan.slot[previous] : -1;
  const bool changes = has_rows && slot != slot_before;
  const bool begins = changes && slot >= 0, ends = changes && slot_before >= 0;
  const unsigned begun = __ballot_sync(kAllLanes, begins);
  if (lane == 0) scratch.begun_by_warp[warp] = __popc(begun);
  __syncthreads();
  int64_t index = __popc(begun & lower), count = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) index += scratch.begun_by_warp[w];
    count += scratch.begun_by_warp[w];
  }
  if (begins && index < p.num_segments) {
    p.seg_starts.set(index, plan.first_token[r]);
    p.seg_slots.set(index, slot);
  }
  if (ends && index - 1 < p.num_segments) p.seg_ends.set(index - 1, plan.first_token[r]);
  if (r == last && slot >= 0 && count - 1 < p.num_segments) {
    p.seg_ends.set(count - 1, num_tokens);
  }
  if (!p.has_segments) return count;  // there are no outputs
  for (int64_t i = count + r; i < p.num_segments; i += kThreads) {
    p.seg_starts.set(i, 0);
    p.seg_ends.set(i, 0);
    p.seg_slots.set(i, -1);
  }
  return count;
}

// What has one entry per request, the segments and `overflow`. All threads of one block.
template <class P>
__device__ void write_requests(const P& p, const SmallPlan<typename P::Number>& plan,
                               const SmallTotals& totals, const SmallSeq<typename P::Number>& seq,
                               SegmentScratch& scratch) {
  const int r = threadIdx.x;
  if (r < p.num_seqs) {
    const bool is_last = r == kThreads - 1;
    p.q_indptr.set(r + 1, is_last ? totals.tokens : plan.first_token[r + 1]);
    p.start_lengths.set(r, seq.start);
    p.kv_lengths.set(r, seq.kv_length);
    p.page_indptr.set(r + 1, plan.first_page[r + 1]);
    p.last_page_len.set(r, seq.last_page_len);
  }
  if (r == 0) {
    p.q_indptr.set(0, 0);
    p.page_indptr.set(0, 0);
  }
  const uint32_t flags = __reduce_or_sync(kAllLanes, static_cast<uint32_t>(seq.overflow));
  if (r % 32 == 0) scratch.overflow_of_warp[r / 32] = flags;
  const int64_t segments = write_segments(p, plan, totals.tokens, scratch);  // with barriers
  if (r > 0 || !p.overflow.is_given()) return;
  uint32_t all = segments > p.num_segments ? kSegmentOverflow : 0;
  for (int w = 0; w < kWarps; ++w) all |= scratch.overflow_of_warp[w];
  p.overflow.set_given(0, all);
}

// One block for the requests; items go round the warps of the others.
template <class P>
__global__ void __launch_bounds__(kThreads)
    prepare_small_batch_kernel(const __grid_constant__ P p) {
  using Number = typename P::Number;
  __shared__ SmallPlan<Number> plan;
  __shared__ SegmentScratch segment_scratch;
  begin_early(p);
  SmallTotals totals;
  const SmallSeq<Number> seq = plan_seq(p, plan, totals);
  __syncthreads();
  if (blockIdx.x == 0) {
    write_requests(p, plan, totals, seq, segment_scratch);
    return;
  }
  const auto adapters_begin = static_cast<int>(p.items.token_items);
  const int pages_begin = adapters_begin + static_cast<int>(p.items.adapter_items);
  const int table_begin = pages_begin + static_cast<int>(p.items.page_items);
  const int slots_begin = table_begin + static_cast<int>(p.items.table_items);
  const int end = slots_begin + static_cast<int>(p.items.slot_items);
  const int step = static_cast<int>(gridDim.x - 1) * kWarps;
  int item = static_cast<int>(blockIdx.x - 1) * kWarps + static_cast<int>(threadIdx.x) / 32;
  for (; item < end; item += step) {
    if (item < adapters_begin) {
      write_tokens(p, plan, totals, item);
    } else if (item < pages_begin) {
      write_adapter_rows(p, plan, totals, item - adapters_begin);
    } else if (item < table_begin) {
      write_pages(p, plan, totals, item - pages_begin);
    } else if (item < slots_begin) {
      write_table(p, plan, item - table_begin);
    } else {
      write_slot(p, plan, item - slots_begin);
    }
  }
}

}  // namespace

void prepare_small_batch(const ExecContext& ctx, const PrepareBatchParams& p,
                         const PrepareBatchItems& items, PrepareBatchKernel kernel) {
  if (kernel == PrepareBatchKernel::kSmallContiguous) {
    const auto packed = pack<ContiguousTensors>(p, items);
    launch_early<prepare_small_batch_kernel<ContiguousBatchParams>>(ctx, items.blocks, kThreads,
                                                                    packed);
  } else {
    const auto packed = pack<GeneralTensors>(p, items);
    launch_early<prepare_small_batch_kernel<GeneralBatchParams>>(ctx, items.blocks, kThreads,
                                                                 packed);
  }
}

}  // namespace heddle::cuda::metadata
