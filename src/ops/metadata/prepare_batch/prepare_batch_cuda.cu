#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"

#include "core/kernel_log.h"
#include "ops/metadata/prepare_batch/prepare_batch_plan_cuda.h"
#include "ops/metadata/prepare_batch/prepare_batch_segments_cuda.h"

// One launch, no exchange between blocks. Each block plans all requests, a window after the other
// (prepare_batch_plan_cuda.h); after that barrier warps share no more. The first block writes what
// has one entry per request; each warp of the others takes work items. A decode step has one
// window.
//
//   block 0         a thread a request: lengths, pages, segments
//   other blocks    8 or 16 warps, each a work item after the other
//     warp          1 to 32 tokens, or 128 pages or table entries, or a slot
//       lane        a token, or 4 pages

namespace heddle::cuda::metadata {
namespace {

/// Consecutive requests.
struct Rows {
  int first, count;
};
/// Those that have elements [first, last) of a ragged array, of which there is at least one. All
/// lanes.
template <class P>
__device__ Rows rows_of(const P&, const typename P::Place* starts, typename P::Place first,
                        typename P::Place last) {
  uint32_t begun = 0;  // at the first element, and 16 bits higher at the last one
#pragma unroll
  for (int r = 0; r < P::Tensors::kThreads; r += 32) {
    const typename P::Place start = starts[r + static_cast<int>(threadIdx.x) % 32];
    begun += (start <= first ? 1u : 0u) + (start < last ? 1u << 16 : 0u);
  }
  begun = __reduce_add_sync(kAllLanes, begun);
  const int row = static_cast<int>(begun & 0xffff) - 1;
  return {row, static_cast<int>(begun >> 16) - row};
}
template <class Place>
__device__ int row_within(const Place* starts, const Rows& rows, Place element) {
  return rows.count <= 1 ? rows.first
                         : rows.first + row_of(starts + rows.first, rows.count, element);
}

__device__ uint32_t warp_sum(uint32_t x) { return __reduce_add_sync(kAllLanes, x); }
__device__ uint64_t warp_sum(uint64_t x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}
/// Rows with an adapter that come before those of request `seq` of the batch with this slot: those
/// of lower slots, and of earlier requests. All lanes.
template <class P>
__device__ typename P::Place adapter_rows_before(const P& p, const BatchWindow<P>& plan,
                                                 typename BatchWindow<P>::Word slot,
                                                 typename P::Place seq) {
  using Word = typename BatchWindow<P>::Word;
  Word sum = 0;
  const auto add = [&](typename P::Place other, const SlotTokens<Word>& o) {
    if (o.slot < slot || (o.slot == slot && other < seq)) sum += o.tokens;
  };
  const int lane = threadIdx.x % 32;
  if constexpr (P::Tensors::kHasWindows) {  // other windows are not planned now
#pragma unroll 4
    for (int64_t other = lane; other < plan.num_active && other <= plan.cut_seq; other += 32) {
      const LoadedIndex adapter = load_input(p.adapter_slots, other),
                        input = load_input(p.input_lengths, other);
      const int64_t asked =
          p.input_lengths.is_given() ? bounded_length<P>(number_of<P>(input)) : p.tokens_per_seq;
      add(other, {static_cast<Word>(slot_within(p, adapter)),
                  static_cast<Word>(other == plan.cut_seq ? plan.cut_tokens : asked)});
    }
  } else {
#pragma unroll
    for (int r = 0; r < BatchWindow<P>::kThreads; r += 32) {
      const int other = r + lane;
      add(other, plan.slot_tokens[other]);
    }
  }
  return static_cast<typename P::Place>(warp_sum(sum));
}

/// Page `index` of a request; -1, without a read, where it has none.
template <class P>
__device__ LoadedIndex load_page(const P& p, const BatchWindow<P>& plan, int row,
                                 typename P::Number index, bool in_range) {
  in_range = in_range && index < plan.num_given[row];
  const bool in_list = p.seq_page_indptr.is_given();
  const auto pages = in_list ? p.seq_pages : p.seq_page_table.row_given(plan.seq_of(row));
  const LoadedIndex page =
      load_input(pages, index + (in_list ? plan.given_begin[row] : 0), in_range);
  return in_range ? page : LoadedIndex::of(-1);
}

/// Where the rows of each of up to 32 requests from `first` on begin in adapter_rows: that of
/// request first + i in lane i. All lanes. One sum over the earlier requests for each slot that
/// these have.
template <class P>
__device__ typename P::Place adapter_places(const P& p, const BatchWindow<P>& plan, int first,
                                            int count) {
  using Word = typename BatchWindow<P>::Word;
  using Place = typename P::Place;
  const int lane = threadIdx.x % 32;
  const SlotTokens<Word> own =
      lane < count ? plan.slot_tokens[first + lane] : SlotTokens<Word>{~Word{0}, 0};
  Place place = 0;
  unsigned left = __ballot_sync(kAllLanes, static_cast<Place>(own.slot) >= 0 && own.tokens > 0);
  while (left != 0) {
    const Word slot = __shfl_sync(kAllLanes, own.slot, __ffs(static_cast<int>(left)) - 1);
    const Place before = adapter_rows_before(p, plan, slot, plan.seq_of(first));
    const bool is_mine = own.slot == slot;
    Word sum = is_mine ? own.tokens : 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const Word other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (is_mine) place = before + static_cast<Place>(sum - own.tokens);
    left &= ~__ballot_sync(kAllLanes, is_mine);
  }
  return place;
}

// Token `token` of the batch, of request `row`.
template <class P>
__device__ void write_token(const P& p, const BatchWindow<P>& plan, int row,
                            typename P::Place token) {
  using Number = typename P::Number;
  const typename P::Place j = token - plan.first_token[row], seq = plan.seq_of(row);
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
  const auto ids = p.all_input_ids.row_given(seq);
  LoadedIndex id = LoadedIndex::of(p.pad_token);
  if (is_brought) {
    id = load_input(p.next_input_ids, from);
  } else if (has_place && p.input_ids.is_given()) {
    id = load_input(ids, position);
  }
  p.positions.set(token, position);
  p.token_to_seq.set(token, seq);
  p.slot_ids.set(token, slot);
  if (p.kv_slots.is_given()) {
    const int64_t number = page.value();
    p.kv_slots.set_given(
        token, number >= 0 && number < p.page_end ? number * int64_t{p.page_size} + place : -1);
  }
  p.input_ids.set(token, id.value());
  if (is_brought && has_place) ids.set_given(position, id.value());
}

/// A warp's share of a ragged output: of elements [begin, end) those of the window, [first, last),
/// and after them padding.
template <class P>
struct WarpItem {
  using Place = typename P::Place;
  using Number = typename P::Number;
  Place begin, end, first, last;

  /// starts: of the window's requests; total: where these end; size: of the output.
  __device__ WarpItem(const Place* starts, Place total, Place item, Number per_item, Number size)
      : begin(item * static_cast<Place>(per_item)),
        end(static_cast<Place>(smaller(static_cast<Number>(begin + per_item), size))),
        first(P::Tensors::kHasWindows ? larger(begin, starts[0]) : begin),
        last(smaller(end, total)) {}

  [[nodiscard]] __device__ bool has_rows() const { return first < last; }
  /// Of an element that is not before `begin`.
  [[nodiscard]] __device__ bool has(Place x) const {
    return (!P::Tensors::kHasWindows || x >= first) && x < last;
  }
};

template <class P>
__device__ void write_tokens(const P& p, const BatchWindow<P>& plan,
                             const BatchTotals<typename P::Place>& totals, typename P::Place item,
                             bool is_last) {
  const WarpItem<P> span(plan.first_token, totals.tokens, item, p.items.tokens_per_item,
                         p.num_tokens);
  const typename P::Place token = span.begin + static_cast<int>(threadIdx.x) % 32;
  if (span.has_rows()) {
    const Rows rows = rows_of(p, plan.first_token, span.first, span.last);
    if (span.has(token)) write_token(p, plan, row_within(plan.first_token, rows, token), token);
  }
  if (!is_last || token < totals.tokens || token >= span.end) return;
  p.positions.set(token, 0);
  p.kv_slots.set(token, -1);
  p.token_to_seq.set(token, -1);
  p.input_ids.set(token, p.pad_token);
  p.slot_ids.set(token, -1);
}

template <class P>
__device__ void write_adapter_rows(const P& p, const BatchWindow<P>& plan,
                                   const BatchTotals<typename P::Place>& totals,
                                   typename P::Place item, bool is_last) {
  const WarpItem<P> span(plan.first_token, totals.tokens, item, p.items.tokens_per_item,
                         p.num_tokens);
  const typename P::Place token = span.begin + static_cast<int>(threadIdx.x) % 32;
  if (span.has_rows()) {
    const Rows rows = rows_of(p, plan.first_token, span.first, span.last);
    const int row = row_within(plan.first_token, rows, token);
    for (int first_row = 0; first_row < rows.count; first_row += 32) {
      const auto places =
          adapter_places(p, plan, rows.first + first_row, smaller(32, rows.count - first_row));
      const int of_lane = row - rows.first - first_row;
      const auto place = __shfl_sync(kAllLanes, places, of_lane & 31);
      if (of_lane < 0 || of_lane >= 32 || !span.has(token) || plan.slot[row] < 0) continue;
      p.adapter_rows.set_given(place + token - plan.first_token[row], token);
    }
  }
  if (is_last && token < span.end && token >= totals.adapter_rows) {
    p.adapter_rows.set_given(token, -1);
  }
}

constexpr int kPerLane = static_cast<int>(kPagesPerItem) / 32;

template <class P>
__device__ void write_pages(const P& p, const BatchWindow<P>& plan,
                            const BatchTotals<typename P::Place>& totals, typename P::Place item,
                            bool is_last) {
  using Place = typename P::Place;
  const WarpItem<P> span(plan.first_page, totals.pages, item, kPagesPerItem, p.max_pages);
  const Place begin = span.begin + static_cast<int>(threadIdx.x) % 32;
  LoadedIndex page[kPerLane];
  if (span.has_rows()) {
    const Rows rows = rows_of(p, plan.first_page, span.first, span.last);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const Place i = begin + k * 32;
      const int row = row_within(plan.first_page, rows, i);
      page[k] = load_page(p, plan, row, i - plan.first_page[row], span.has(i));
    }
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const Place i = begin + k * 32;
    const bool is_page = span.has(i), is_padding = is_last && i >= totals.pages && i < span.end;
    if (is_page || is_padding) p.pages.set_given(i, is_page ? page[k].value() : p.pad_page);
  }
}

template <class P>
__device__ void write_table(const P& p, const BatchWindow<P>& plan, typename P::Place item) {
  using Place = typename P::Place;
  constexpr bool kHasWindows = P::Tensors::kHasWindows;
  constexpr int kThreads = P::Tensors::kThreads;
  const auto width = static_cast<Place>(p.table_width);
  const Place end = static_cast<Place>(p.num_seqs) * width;
  const Place first = item * static_cast<Place>(kPagesPerItem);
  const Place first_seq = plan.seq_of(0);
  if (kHasWindows &&
      (first >= (first_seq + kThreads) * width || first + kPagesPerItem <= first_seq * width)) {
    return;
  }
  LoadedIndex page[kPerLane];
  Place row[kPerLane];  // of the table
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const Place i = first + static_cast<int>(threadIdx.x) % 32 + k * 32;
    row[k] = i < end ? divide_nonnegative(i, width) : first_seq;
    const Place column = i - row[k] * width, of_window = row[k] - first_seq;
    const bool is_planned = !kHasWindows || (of_window >= 0 && of_window < kThreads);
    const int r = is_planned ? static_cast<int>(of_window) : 0;
    const bool in_range =
        i < end && is_planned && column < plan.first_page[r + 1] - plan.first_page[r];
    page[k] = load_page(p, plan, r, column, in_range);
    if (!in_range) page[k] = LoadedIndex::of(p.pad_page);
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const Place i = first + static_cast<int>(threadIdx.x) % 32 + k * 32;
    const Place of_window = row[k] - first_seq;
    if (i < end && (!kHasWindows || (of_window >= 0 && of_window < kThreads))) {
      p.page_table.row_given(row[k]).set_given(i - row[k] * width, page[k].value());
    }
  }
}

// An entry of adapter_indptr.
template <class P>
__device__ void write_slot(const P& p, const BatchWindow<P>& plan, typename P::Place slot) {
  const auto before = adapter_rows_before(p, plan, static_cast<typename BatchWindow<P>::Word>(slot),
                                          typename P::Place{0});
  if (threadIdx.x % 32 == 0) p.adapter_indptr.set_given(slot, before);
}

// Ids for all_input_ids where no output has one entry per token: a warp per request of the window.
template <class P>
__device__ void write_loose_ids(const P& p, const BatchWindow<P>& plan) {
  constexpr int kWarps = P::Tensors::kThreads / 32;
  const int first = static_cast<int>(blockIdx.x - 1) * kWarps + static_cast<int>(threadIdx.x) / 32;
  for (int r = first; r < P::Tensors::kThreads; r += static_cast<int>(gridDim.x - 1) * kWarps) {
    const int64_t start = plan.start[r], begin = plan.next_begin[r];
    // Of the tokens that have an id, those whose id and whose place exist.
    int64_t end = smaller(static_cast<int64_t>(plan.slot_tokens[r].tokens),
                          smaller(plan.next_end[r], p.num_next_ids) - begin);
    end = smaller(end, p.max_length - start);
    const int64_t first_id = larger(larger(int64_t{0}, -begin), plan.prompt[r] - start);
    for (int64_t j = first_id + static_cast<int>(threadIdx.x) % 32; j < end; j += 32) {
      const LoadedIndex id = load_input(p.next_input_ids, begin + j);
      p.all_input_ids.row_given(plan.seq_of(r)).set_given(start + j, id.value());
    }
  }
}

// Outputs with one entry per request, the segments and `overflow`. All threads of one block.
template <class P, int kWarps>
__device__ void write_requests(const P& p, const BatchWindow<P>& plan,
                               const BatchTotals<typename P::Place>& totals,
                               const PlannedSeq<typename P::Number>& planned, bool is_last_window,
                               SegmentScratch<kWarps>& scratch,
                               BatchSegments<typename P::Number>& segments) {
  const int r = threadIdx.x;
  const typename P::Place seq = plan.seq_of(r);
  if (seq < p.num_seqs) {
    const bool is_last = r == P::Tensors::kThreads - 1;
    p.q_indptr.set(seq + 1, is_last ? totals.tokens : plan.first_token[r + 1]);
    p.start_lengths.set(seq, planned.start);
    p.kv_lengths.set(seq, planned.kv_length);
    p.page_indptr.set(seq + 1, plan.first_page[r + 1]);
    p.last_page_len.set(seq, planned.last_page_len);
  }
  if (r == 0) {
    p.q_indptr.set(0, 0);
    p.page_indptr.set(0, 0);
  }
  segments.overflow |= __reduce_or_sync(kAllLanes, static_cast<uint32_t>(planned.overflow));
  if (r % 32 == 0) scratch.overflow_of_warp[r / 32] = segments.overflow;
  write_segments(p, plan, totals.tokens, is_last_window, scratch, segments);  // with barriers
  if (r > 0 || !is_last_window || !p.overflow.is_given()) return;
  uint32_t all = segments.count > p.num_segments ? kSegmentOverflow : 0;
  for (int w = 0; w < kWarps; ++w) all |= scratch.overflow_of_warp[w];
  p.overflow.set_given(0, all);
}

// Work items go round the warps of all blocks but the first. All threads.
template <class P>
__device__ void write_items(const P& p, const BatchWindow<P>& plan,
                            const BatchTotals<typename P::Place>& totals, bool is_last_window) {
  using Place = typename P::Place;
  constexpr int kWarps = P::Tensors::kThreads / 32;
  const auto adapters_begin = static_cast<Place>(p.items.token_items);
  const Place pages_begin = adapters_begin + static_cast<Place>(p.items.adapter_items);
  const Place table_begin = pages_begin + static_cast<Place>(p.items.page_items);
  const Place slots_begin = table_begin + static_cast<Place>(p.items.table_items);
  const Place end =
      is_last_window ? slots_begin + static_cast<Place>(p.items.slot_items) : slots_begin;
  const Place step = static_cast<Place>(gridDim.x - 1) * kWarps;
  Place item = static_cast<Place>(blockIdx.x - 1) * kWarps + static_cast<int>(threadIdx.x) / 32;
  for (; item < end; item += step) {
    if (item < adapters_begin) {
      write_tokens(p, plan, totals, item, is_last_window);
    } else if (item < pages_begin) {
      write_adapter_rows(p, plan, totals, item - adapters_begin, is_last_window);
    } else if (item < table_begin) {
      write_pages(p, plan, totals, item - pages_begin, is_last_window);
    } else if (item < slots_begin) {
      write_table(p, plan, item - table_begin);
    } else {
      write_slot(p, plan, item - slots_begin);
    }
  }
  if (P::Tensors::kHasWindows && p.has_loose_ids) write_loose_ids(p, plan);
}

template <class P>
__global__ void __launch_bounds__(P::Tensors::kThreads, P::Tensors::kMinBlocksPerSm)
    prepare_batch_kernel(const __grid_constant__ P p) {
  using Place = typename P::Place;
  constexpr int kThreads = P::Tensors::kThreads;
  constexpr bool kHasWindows = P::Tensors::kHasWindows;
  __shared__ BatchWindow<P> plan;
  __shared__ SegmentScratch<kThreads / 32> segment_scratch;
  begin_early(p);
  if constexpr (kHasWindows) {
    if (threadIdx.x == 0) plan.cut_seq = p.num_seqs;
    __syncthreads();
    if (blockIdx.x > 0 && p.adapter_indptr.is_given() && p.num_seqs > kThreads) {
      BatchTotals<Place> totals;  // to find where requests are cut
      for (Place first_seq = 0; first_seq < p.num_seqs; first_seq += kThreads) {
        plan_seq(p, plan, first_seq, totals);
        __syncthreads();
      }
    }
  }
  BatchTotals<Place> totals;
  BatchSegments<typename P::Number> segments;
  for (Place first_seq = 0;; first_seq += kThreads) {
    const auto seq = plan_seq(p, plan, first_seq, totals);
    const bool is_last_window = !kHasWindows || first_seq + kThreads >= p.num_seqs;
    __syncthreads();
    if (blockIdx.x == 0) {
      write_requests(p, plan, totals, seq, is_last_window, segment_scratch, segments);
    } else {
      write_items(p, plan, totals, is_last_window);
    }
    if (is_last_window) return;
    __syncthreads();
  }
}

template <class T>
void launch(const ExecContext& ctx, const PrepareBatchParams& p) {
  const PrepareBatchItems items = select_prepare_batch_items(p, ctx.info.num_sms);
  launch_early<prepare_batch_kernel<BatchParams<T>>>(ctx, items.blocks, T::kThreads,
                                                     pack<T>(p, items));
}

}  // namespace

void prepare_batch(const ExecContext& ctx, const PrepareBatchParams& p) {
  const PrepareBatchKernel kernel = select_prepare_batch_kernel(p);
  log_choice("prepare_batch", kernel);
  switch (kernel) {
    case PrepareBatchKernel::kSmallContiguous: return launch<ContiguousTensors>(ctx, p);
    case PrepareBatchKernel::kSmallGeneral: return launch<GeneralTensors>(ctx, p);
    case PrepareBatchKernel::kGeneral: return launch<LargeBatchTensors>(ctx, p);
  }
}

}  // namespace heddle::cuda::metadata
