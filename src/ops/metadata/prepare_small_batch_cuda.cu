#include "cuda/check.h"

#include "ops/metadata/packed_indices_cuda.h"
#include "ops/metadata/prepare_batch_cuda_params.h"

// prepare_batch for at most as many requests as a block has threads and for extents whose sums fit 32 bits: every decode step. Each
// block plans all requests, one per thread; behind that barrier warps share no more. The first block writes what has one entry
// per request; each warp of the others takes a few tokens, or 128 pages or table entries, or a slot.

namespace heddle::cuda {
namespace {

constexpr int kThreads = kFewSeqs, kWarps = kThreads / 32;

template <class Number>
struct SmallPlan {
  int32_t first_token[kThreads], first_page[kThreads + 1];
  uint2 slot_tokens[kThreads];  // a request without adapter has the highest slot
  Number start[kThreads], slot[kThreads];
  Number next_begin[kThreads], next_end[kThreads], prompt[kThreads];
  Number given_begin[kThreads], num_given[kThreads];  // pages
  uint32_t scratch[2][3][kWarps];
};

/// What a thread alone knows of its request.
template <class Number>
struct SmallSeq {
  Number start = 0, kv_length = 0, last_page_len = 0;
  int32_t overflow = 0;
};

/// Of all requests.
struct SmallTotals {
  int32_t tokens, pages, adapter_rows;
};

/// Tokens and pages of the requests in front of this thread's, and totals of those and of rows with an adapter. A barrier within.
__device__ uint2 sums_before(uint3 x, uint32_t (&scratch)[3][kWarps], uint3& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint2 sum{x.x, x.y};
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t tokens = __shfl_up_sync(kAllLanes, sum.x, distance);
    const uint32_t pages = __shfl_up_sync(kAllLanes, sum.y, distance);
    if (lane >= distance) sum = {sum.x + tokens, sum.y + pages};
  }
  const uint32_t rows = __reduce_add_sync(kAllLanes, x.z);
  if (lane == 31) {
    scratch[0][warp] = sum.x;
    scratch[1][warp] = sum.y;
    scratch[2][warp] = rows;
  }
  __syncthreads();
  // The eight sums in a lane each, once more in every eighth one.
  const uint32_t tokens = scratch[0][lane % kWarps], pages = scratch[1][lane % kWarps];
  const bool is_sum = lane < kWarps, is_before = lane < warp;
  const uint2 before{sum.x - x.x + __reduce_add_sync(kAllLanes, is_before ? tokens : 0),
                     sum.y - x.y + __reduce_add_sync(kAllLanes, is_before ? pages : 0)};
  total = {__reduce_add_sync(kAllLanes, is_sum ? tokens : 0),
           __reduce_add_sync(kAllLanes, is_sum ? pages : 0),
           __reduce_add_sync(kAllLanes, is_sum ? scratch[2][lane % kWarps] : 0)};
  return before;
}

/// floor(a / page_size) of a number that is not negative.
template <class P>
__device__ typename P::Number pages_in(const P& p, typename P::Number a) {
  if (p.page_shift >= 0) return a >> p.page_shift;
  return static_cast<typename P::Number>(divide(a, p.page_size));
}

template <class P>
__device__ typename P::Number held_length(int64_t x) {
  constexpr int64_t kMost = P::Tensors::kMostTokens;
  return static_cast<typename P::Number>(larger(int64_t{0}, smaller(x, kMost)));
}

/// How many pages a request is given, of which seq_page_indptr, if there is one, says [begin, end): any number where none are.
template <class P>
__device__ typename P::Number num_given_pages(const P& p, typename P::Number begin,
                                              typename P::Number end) {
  using Number = typename P::Number;
  if (!p.has_given_pages) return P::Tensors::kMostTokens;
  if (p.seq_page_indptr.data == nullptr) return p.given_pages;
  end = smaller(end, p.given_pages);
  return begin >= 0 && begin < end ? end - begin : Number{0};
}

/// Plans the request of this thread; a barrier follows before others see it.
template <class P>
__device__ SmallSeq<typename P::Number> plan_seq(const P& p, SmallPlan<typename P::Number>& plan,
                                                 SmallTotals& totals) {
  using Number = typename P::Number;
  const int r = threadIdx.x;
  const bool is_there = r < p.num_seqs;
  // All reads at once. Those of padding are made, too, so that nothing waits for num_active.
  const RawIndex active = load_raw(p.num_active, 0), cache = load_raw(p.cache_lengths, r, is_there),
                 accepted = load_raw(p.accepted_lengths, r, is_there),
                 input = load_raw(p.input_lengths, r, is_there),
                 adapter = load_raw(p.adapter_slots, r, is_there),
                 given_begin = load_raw(p.seq_page_indptr, r, is_there),
                 given_end = load_raw(p.seq_page_indptr, r + 1, is_there),
                 next_begin = load_raw(p.next_indptr, r, is_there),
                 next_end = load_raw(p.next_indptr, r + 1, is_there),
                 prompt = load_raw(p.prompt_lengths, r, is_there);
  const auto held_number = [](const RawIndex& x) { return static_cast<Number>(held(x.value())); };
  const bool is_active = is_there && (p.num_active.data == nullptr || r < active.value());
  SmallSeq<Number> seq;
  Number asked = 0, slot = -1;
  if (is_active) {
    seq.start = held_length<P>(cache.value());
    if (p.accepted_lengths.data != nullptr) {
      seq.start += held_length<P>(held(accepted.value()) + p.accepted_extra);
    }
    asked = p.input_lengths.data != nullptr ? held_length<P>(input.value()) : p.tokens_per_seq;
    const int64_t given_slot = adapter.value();
    if (p.adapter_slots.data != nullptr && given_slot >= 0 && given_slot < p.num_slots) {
      slot = static_cast<Number>(given_slot);
    }
  }
  const Number given = num_given_pages(p, held_number(given_begin), held_number(given_end));
  const Number most_pages = smaller(smaller(given, p.table_width), p.max_pages);
  const auto needed_pages = [&](Number tokens) {
    if (p.page_size == 0 || !is_active) return Number{0};
    return pages_in(p, seq.start + tokens + p.page_size - 1);
  };
  const auto sums_for = [&](Number tokens) {
    const auto held_tokens = static_cast<uint32_t>(smaller(tokens, p.num_tokens + 1));
    return uint3{held_tokens, static_cast<uint32_t>(smaller(needed_pages(tokens), most_pages)),
                 slot >= 0 ? held_tokens : 0};
  };
  const auto num_tokens = static_cast<uint32_t>(p.num_tokens);
  const auto most_in_all = [](uint32_t x, Number cap) {  // the cap may be far above 32 bits
    return static_cast<Number>(smaller(int64_t{x}, int64_t{cap}));
  };
  uint3 total;
  uint2 before = sums_before(sums_for(asked), plan.scratch[0], total);
  const Number first_token = most_in_all(before.x, p.num_tokens);
  const Number tokens = smaller(asked, p.num_tokens - first_token);
  totals.tokens = static_cast<int32_t>(total.x < num_tokens ? total.x : num_tokens);
  if (total.x > num_tokens) {  // once more with the tokens that there are
    before = sums_before(sums_for(tokens), plan.scratch[1], total);
  }
  const Number needed = needed_pages(tokens), held_pages = smaller(needed, given);
  const Number first_page = most_in_all(before.y, p.max_pages);
  const Number room = smaller(p.table_width, p.max_pages - first_page);
  const Number pages = smaller(held_pages, room);
  seq.kv_length = pages < needed ? pages * p.page_size : seq.start + tokens;
  seq.last_page_len = pages > 0 ? seq.kv_length - (pages - 1) * p.page_size : 0;
  seq.overflow = (tokens < asked ? kTokenOverflow : 0) | (needed > given ? kMissingPages : 0) |
                 (held_pages > room ? kPageOverflow : 0);
  totals.pages = static_cast<int32_t>(most_in_all(total.y, p.max_pages));
  totals.adapter_rows = static_cast<int32_t>(total.z);

  plan.first_token[r] = static_cast<int32_t>(first_token);
  plan.first_page[r] = static_cast<int32_t>(first_page);
  if (r == kThreads - 1) plan.first_page[r + 1] = totals.pages;
  plan.slot_tokens[r] = {static_cast<uint32_t>(slot), static_cast<uint32_t>(tokens)};
  plan.start[r] = seq.start;
  plan.slot[r] = slot;
  if (p.next_indptr.data != nullptr) {
    plan.next_begin[r] = held_number(next_begin);
    plan.next_end[r] = held_number(next_end);
    plan.prompt[r] = held_number(prompt);
  }
  plan.given_begin[r] = held_number(given_begin);
  plan.num_given[r] = given;
  return seq;
}

/// Consecutive requests.
struct Rows {
  int first, count;
};
/// Those that have elements [first, last) of a ragged array, of which there is at least one. All lanes.
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
__device__ RawIndex load_page(const P& p, const SmallPlan<typename P::Number>& plan, int row,
                              typename P::Number index, bool is_there) {
  is_there = is_there && index < plan.num_given[row];
  const bool in_list = p.seq_page_indptr.data != nullptr;
  const auto pages = in_list ? p.seq_pages : row_of(p.seq_page_table, row);
  const RawIndex page = load_raw(pages, index + (in_list ? plan.given_begin[row] : 0), is_there);
  return is_there ? page : RawIndex::of(-1);
}

// Token `token` of the batch, of request `row`.
template <class P>
__device__ void write_token(const P& p, const SmallPlan<typename P::Number>& plan, int row,
                            int token, int first_adapter_row) {
  const int j = token - plan.first_token[row];
  using Number = typename P::Number;
  const Number position = plan.start[row] + j, slot = plan.slot[row];
  Number index = 0, place = 0;  // of the page, and in it
  RawIndex page;
  if (p.kv_slots.data != nullptr) {
    index = pages_in(p, position);
    place = position - index * p.page_size;
    page = load_page(p, plan, row, index, true);
  }
  bool is_brought = false;
  Number from = 0;
  if (p.next_input_ids.data != nullptr) {
    from = plan.next_begin[row] + j;
    is_brought = from < plan.next_end[row] && from >= 0 && from < p.num_next_ids &&
                 position >= plan.prompt[row];
  }
  const bool has_place = p.all_input_ids.row.data != nullptr && position < p.max_length;
  const auto ids = row_of(p.all_input_ids, row);
  RawIndex id = RawIndex::of(p.pad_token);
  if (is_brought) {
    id = load_raw(p.next_input_ids, from);
  } else if (has_place && p.input_ids.data != nullptr) {
    id = load_raw(ids, position);
  }
  store_if(p.positions, token, position);
  store_if(p.token_to_seq, token, row);
  store_if(p.slot_ids, token, slot);
  if (p.adapter_rows.data != nullptr && slot >= 0) {
    store(p.adapter_rows, first_adapter_row + j, token);
  }
  if (p.kv_slots.data != nullptr) {
    const int64_t number = page.value();
    store(p.kv_slots, token,
          number >= 0 && number < p.page_end ? number * int64_t{p.page_size} + place : -1);
  }
  store_if(p.input_ids, token, id.value());
  if (is_brought && has_place) store(ids, position, id.value());
}

// The tokens of a warp. A warp with several requests takes the sums for adapter_rows one after the other.
template <class P>
__device__ void write_tokens(const P& p, const SmallPlan<typename P::Number>& plan,
                             const SmallTotals& totals, int item) {
  const int per_warp = static_cast<int>(p.items.tokens_per_item), first = item * per_warp;
  const int token = first + static_cast<int>(threadIdx.x) % 32;
  const int end =
      static_cast<int>(smaller(static_cast<typename P::Number>(first + per_warp), p.num_tokens));
  const int last = end < totals.tokens ? end : totals.tokens;  // behind it is padding
  if (first < last) {
    const Rows rows = rows_of(plan.first_token, first, last);
    const int row = row_within(plan.first_token, rows, token);
    int place = 0;
    if (p.adapter_rows.data != nullptr) {
      for (int r = rows.first; r < rows.first + rows.count; ++r) {
        const uint2 own = plan.slot_tokens[r];
        if (plan.slot[r] < 0 || own.y == 0) continue;
        const int before = adapter_rows_before(plan, own.x, r);
        if (r == row) place = before;
      }
    }
    if (token < last) write_token(p, plan, row, token, place);
  }
  if (token >= end) return;
  if (token >= totals.adapter_rows) store_if(p.adapter_rows, token, -1);
  if (token < last) return;
  store_if(p.positions, token, 0);
  store_if(p.kv_slots, token, -1);
  store_if(p.token_to_seq, token, -1);
  store_if(p.input_ids, token, p.pad_token);
  store_if(p.slot_ids, token, -1);
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
  RawIndex page[kPerLane];
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
    if (i < end) store(p.pages, i, i < last ? page[k].value() : p.pad_page);
  }
}

template <class P>
__device__ void write_table(const P& p, const SmallPlan<typename P::Number>& plan, int item) {
  const auto width = static_cast<uint32_t>(p.table_width);
  const uint32_t end = static_cast<uint32_t>(p.num_seqs) * width;
  const uint32_t begin = static_cast<uint32_t>(item) * kSmallPagesPerItem + threadIdx.x % 32;
  RawIndex page[kPerLane];
  uint32_t row[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint32_t i = begin + k * 32;
    row[k] = i < end ? i / width : 0;
    const int column = static_cast<int>(i - row[k] * width), r = static_cast<int>(row[k]);
    const bool is_there = i < end && column < plan.first_page[r + 1] - plan.first_page[r];
    page[k] = load_page(p, plan, r, column, is_there);
    if (!is_there) page[k] = RawIndex::of(p.pad_page);
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint32_t i = begin + k * 32;
    if (i < end)
      store(row_of(p.page_table, static_cast<int>(row[k])), i - row[k] * width, page[k].value());
  }
}

// An entry of adapter_indptr.
template <class P>
__device__ void write_slot(const P& p, const SmallPlan<typename P::Number>& plan, int slot) {
  const int before = adapter_rows_before(plan, static_cast<uint32_t>(slot), 0);
  if (threadIdx.x % 32 == 0) store(p.adapter_indptr, slot, before);
}

/// What begins or ends at a request: runs of rows of one adapter.
struct SegmentScratch {
  int last_of_warp[kWarps];  // the last request of each warp that has rows, or -1
  int begun_by_warp[kWarps];
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
    store_if(p.seg_starts, index, plan.first_token[r]);
    store_if(p.seg_slots, index, slot);
  }
  if (ends && index - 1 < p.num_segments) store_if(p.seg_ends, index - 1, plan.first_token[r]);
  if (r == last && slot >= 0 && count - 1 < p.num_segments) {
    store_if(p.seg_ends, count - 1, num_tokens);
  }
  if (!p.has_segments) return count;  // there are no outputs
  for (int64_t i = count + r; i < p.num_segments; i += kThreads) {
    store_if(p.seg_starts, i, 0);
    store_if(p.seg_ends, i, 0);
    store_if(p.seg_slots, i, -1);
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
    store_if(p.q_indptr, r + 1, is_last ? totals.tokens : plan.first_token[r + 1]);
    store_if(p.start_lengths, r, seq.start);
    store_if(p.kv_lengths, r, seq.kv_length);
    store_if(p.page_indptr, r + 1, plan.first_page[r + 1]);
    store_if(p.last_page_len, r, seq.last_page_len);
  }
  if (r == 0) {
    store_if(p.q_indptr, 0, 0);
    store_if(p.page_indptr, 0, 0);
  }
  int64_t segments = 0;
  if (p.adapter_slots.data != nullptr || p.has_segments) {
    segments = write_segments(p, plan, totals.tokens, scratch);
  }
  if (p.overflow.data == nullptr) return;
  int flags = 0;  // one bit after the other: there are three
  for (const int flag : {kTokenOverflow, kPageOverflow, kMissingPages}) {
    if (__syncthreads_or(seq.overflow & flag) != 0) flags |= flag;
  }
  if (r == 0) store(p.overflow, 0, flags | (segments > p.num_segments ? kSegmentOverflow : 0));
}

// One block for the requests; items go round the warps of the others.
template <class P>
__global__ void __launch_bounds__(kThreads)
    prepare_small_batch_kernel(const __grid_constant__ P p) {
  using Number = typename P::Number;
  __shared__ SmallPlan<Number> plan;
  __shared__ SegmentScratch segment_scratch;
  SmallTotals totals;
  const SmallSeq<Number> seq = plan_seq(p, plan, totals);
  __syncthreads();
  if (blockIdx.x == 0) {
    write_requests(p, plan, totals, seq, segment_scratch);
    return;
  }
  const auto pages_begin = static_cast<int>(p.items.token_items);
  const int table_begin = pages_begin + static_cast<int>(p.items.page_items);
  const int slots_begin = table_begin + static_cast<int>(p.items.table_items);
  const int end = slots_begin + static_cast<int>(p.items.slot_items);
  const int step = static_cast<int>(gridDim.x - 1) * kWarps;
  int item = static_cast<int>(blockIdx.x - 1) * kWarps + static_cast<int>(threadIdx.x) / 32;
  for (; item < end; item += step) {
    if (item < pages_begin) {
      write_tokens(p, plan, totals, item);
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
                         const PrepareBatchItems& items) {
  if (is_plain(p)) {
    const auto packed = pack<PlainTensors>(p, items);
    prepare_small_batch_kernel<<<items.blocks, kThreads, 0, ctx.stream>>>(packed);
  } else {
    const auto packed = pack<AnyTensors>(p, items);
    prepare_small_batch_kernel<<<items.blocks, kThreads, 0, ctx.stream>>>(packed);
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda
