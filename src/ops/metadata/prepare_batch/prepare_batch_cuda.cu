#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/metadata/prepare_batch/prepare_batch_plan_cuda.h"

// One launch, no exchange between blocks. Every block plans all requests
// (prepare_batch_plan_cuda.h); the first one then writes what has one entry per request, the
// segments and `overflow`, the others what has one per token, page, table entry and slot.

namespace heddle::cuda::metadata {

namespace {

/// Elements [begin, end) that an item shares with a part of an array.
struct Span {
  int64_t begin, end;
};
__device__ Span item_within(int64_t item, int64_t per_item, int64_t begin, int64_t end) {
  return {larger(item * per_item, begin), smaller((item + 1) * per_item, end)};
}

/// Runs of rows of one adapter, so far: taken by the first block.
struct Segments {
  int64_t count = 0, last_slot = -1;
};
struct SegmentScratch {
  int last_of_warp[kMaxWarps];  // the last request of each warp that has rows, or -1
  int begun_by_warp[kMaxWarps];
};

// Requests without rows end no run. All threads of the block, one request each.
__device__ void write_segments(const GeneralBatchParams& p, const PlannedWindow& window,
                               SegmentScratch& scratch, Segments& segments) {
  const int r = threadIdx.x, lane = r % 32, warp = r / 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  const unsigned lower = (1u << lane) - 1;
  const auto last_in = [](unsigned lanes) { return 31 - __clz(static_cast<int>(lanes)); };
  const SlotTokens own = window.slots[r];
  const unsigned with_rows = __ballot_sync(kAllLanes, own.tokens > 0);
  if (lane == 0) scratch.last_of_warp[warp] = with_rows == 0 ? -1 : warp * 32 + last_in(with_rows);
  __syncthreads();
  int previous = -1, last = -1;  // requests with rows: before this one, and of the window
  for (int w = 0; w < num_warps; ++w) {
    const int of_warp = scratch.last_of_warp[w];
    if (of_warp < 0) continue;
    if (w < warp) previous = of_warp;
    last = of_warp;
  }
  if ((with_rows & lower) != 0) previous = warp * 32 + last_in(with_rows & lower);
  const int64_t slot_before = previous >= 0 ? window.slots[previous].slot : segments.last_slot;
  const bool changes = own.tokens > 0 && own.slot != slot_before;
  const bool begins = changes && own.slot >= 0, ends = changes && slot_before >= 0;
  const unsigned begun = __ballot_sync(kAllLanes, begins);
  if (lane == 0) scratch.begun_by_warp[warp] = __popc(begun);
  __syncthreads();
  int64_t index = segments.count + __popc(begun & lower);
  for (int w = 0; w < num_warps; ++w) {
    if (w < warp) index += scratch.begun_by_warp[w];
    segments.count += scratch.begun_by_warp[w];
  }
  if (begins && index < p.num_segments) {
    p.seg_starts.set(index, window.first_token[r]);
    p.seg_slots.set(index, own.slot);
  }
  if (ends && index - 1 < p.num_segments) p.seg_ends.set(index - 1, window.first_token[r]);
  if (last >= 0) segments.last_slot = window.slots[last].slot;
}

// Closes the last run and pads.
__device__ void finish_segments(const GeneralBatchParams& p, const Segments& segments,
                                int64_t num_tokens) {
  const int64_t open = segments.count - 1;
  if (threadIdx.x == 0 && segments.last_slot >= 0 && open < p.num_segments) {
    p.seg_ends.set(open, num_tokens);
  }
  if (!p.has_segments) return;  // there are no outputs
  for (int64_t i = segments.count + threadIdx.x; i < p.num_segments; i += blockDim.x) {
    p.seg_starts.set(i, 0);
    p.seg_ends.set(i, 0);
    p.seg_slots.set(i, -1);
  }
}

// What has one entry per request: one thread each.
__device__ void write_seq(const GeneralBatchParams& p, int64_t seq, const PlannedWindow& window,
                          const PlannedSeq& plan) {
  if (seq >= p.num_seqs) return;
  const int r = threadIdx.x;
  p.q_indptr.set(seq + 1, window.first_token[r + 1]);
  p.start_lengths.set(seq, plan.start);
  p.kv_lengths.set(seq, plan.kv_length);
  p.page_indptr.set(seq + 1, window.first_page[r + 1]);
  p.last_page_len.set(seq, plan.last_page_len);
}

/// Where the id of token j of a request comes from, and goes to.
struct TokenId {
  LoadedIndex id;
  bool is_brought, is_stored;
};
__device__ TokenId fetch_id(const GeneralBatchParams& p, int64_t seq, int64_t j, int64_t position) {
  TokenId result{LoadedIndex::of(p.pad_token), false, false};
  if (p.next_input_ids.is_given()) {
    const LoadedIndex begin = load_input(p.next_indptr, seq),
                      end = load_input(p.next_indptr, seq + 1),
                      prompt = load_input(p.prompt_lengths, seq);  // 0 where that is absent
    const int64_t from = bounded(begin.value()) + j;
    result.is_brought = from < bounded(end.value()) && from >= 0 && from < p.num_next_ids &&
                        position >= bounded(prompt.value());
    if (result.is_brought) result.id = load_input(p.next_input_ids, from);
  }
  const bool has_place = p.all_input_ids.is_given() && position < p.max_length;
  result.is_stored = result.is_brought && has_place;
  if (!result.is_brought && has_place && p.input_ids.is_given()) {
    result.id = load_input(p.all_input_ids.row_given(seq), position);
  }
  return result;
}
__device__ void store_id(const GeneralBatchParams& p, int64_t seq, int64_t position,
                         const TokenId& id) {
  if (id.is_stored) p.all_input_ids.row_given(seq).set_given(position, id.id.value());
}

// Token `token` of the batch, of request r of the window.
__device__ void write_token(const GeneralBatchParams& p, const PlannedWindow& window,
                            int64_t first_seq, int r, int64_t token) {
  const int64_t seq = first_seq + r, j = token - window.first_token[r];
  const int64_t position = window.start[r] + j, slot = window.slots[r].slot;
  LoadedIndex page = LoadedIndex::of(-1);
  int64_t place = 0;  // in the page
  if (p.kv_slots.is_given()) {
    const int64_t index = divide_nonnegative(position, p.page_size);
    const GivenPages given = pages_of(p, seq);
    place = position - index * p.page_size;
    if (index < given.size) page = load_input(given.pages, index);
  }
  const TokenId id = fetch_id(p, seq, j, position);
  p.positions.set(token, position);
  p.token_to_seq.set(token, seq);
  p.slot_ids.set(token, slot);
  if (p.adapter_rows.is_given() && slot >= 0) {
    p.adapter_rows.set_given(window.adapter_place[r] + j, token);
  }
  if (p.kv_slots.is_given()) {
    const int64_t number = page.value();
    p.kv_slots.set_given(token,
                         number >= 0 && number < p.page_end ? number * p.page_size + place : -1);
  }
  p.input_ids.set(token, id.id.value());
  store_id(p, seq, position, id);
}

// An item of tokens, as far as they are of the window. All threads.
__device__ void write_tokens(const GeneralBatchParams& p, PlannedWindow& window, int64_t first_seq,
                             bool is_whole, int64_t num_active, int64_t item) {
  const int count = static_cast<int>(blockDim.x);
  const Span span =
      item_within(item, p.items.tokens_per_item, window.first_token[0], window.first_token[count]);
  if (span.begin >= span.end) return;
  if (p.adapter_rows.is_given()) {
    const int first = row_of(window.first_token, count, span.begin);
    const int last = row_of(window.first_token, count, span.end - 1);
    const int per_round = count / kLanesPerSum;
    __syncthreads();  // the places of the item before are read no more
    for (int base = first; base <= last; base += per_round) {  // whole warps take part
      const int r = base + static_cast<int>(threadIdx.x) / kLanesPerSum;
      const int64_t slot = r <= last ? window.slots[r].slot : -1;
      const int64_t place =
          adapter_rows_before(p, window, is_whole, num_active, slot, first_seq + r);
      if (r <= last && threadIdx.x % kLanesPerSum == 0) window.adapter_place[r] = place;
    }
    __syncthreads();
  }
  for (int64_t t = span.begin + threadIdx.x; t < span.end; t += count) {
    write_token(p, window, first_seq, row_of(window.first_token, count, t), t);
  }
}

__device__ void write_pages(const GeneralBatchParams& p, const PlannedWindow& window,
                            int64_t first_seq, int64_t item) {
  const int count = static_cast<int>(blockDim.x);
  const Span span =
      item_within(item, kPagesPerItem, window.first_page[0], window.first_page[count]);
  for (int64_t i = span.begin + threadIdx.x; i < span.end; i += count) {
    const int r = row_of(window.first_page, count, i);
    p.pages.set_given(
        i, load_input(pages_of(p, first_seq + r).pages, i - window.first_page[r]).value());
  }
}

__device__ void write_table(const GeneralBatchParams& p, const PlannedWindow& window,
                            int64_t first_seq, int64_t item) {
  const int64_t end_seq = smaller(first_seq + blockDim.x, p.num_seqs);
  const Span span =
      item_within(item, kPagesPerItem, first_seq * p.table_width, end_seq * p.table_width);
  for (int64_t i = span.begin + threadIdx.x; i < span.end; i += blockDim.x) {
    const int64_t seq = divide_nonnegative(i, p.table_width), column = i - seq * p.table_width;
    const int r = static_cast<int>(seq - first_seq);
    LoadedIndex page = LoadedIndex::of(p.pad_page);
    if (column < window.first_page[r + 1] - window.first_page[r]) {
      page = load_input(pages_of(p, seq).pages, column);
    }
    p.page_table.row_given(seq).set_given(column, page.value());
  }
}

// Ids for all_input_ids where no output has one entry per token: a warp per request.
__device__ void write_loose_ids(const GeneralBatchParams& p, const PlannedWindow& window,
                                int64_t first_seq) {
  const int num_warps = static_cast<int>(blockDim.x) / 32, lane = threadIdx.x % 32;
  const int first = (static_cast<int>(blockIdx.x) - 1) * num_warps + threadIdx.x / 32;
  const int count = static_cast<int>(smaller(blockDim.x, p.num_seqs - first_seq));
  for (int r = first; r < count; r += (static_cast<int>(gridDim.x) - 1) * num_warps) {
    const int64_t seq = first_seq + r, start = window.start[r];
    const int64_t begin = bounded(load_input(p.next_indptr, seq).value());
    const int64_t ids = bounded(load_input(p.next_indptr, seq + 1).value()) - begin;
    // Of the tokens that have an id, those whose id and whose place are there.
    int64_t end = smaller(smaller(window.slots[r].tokens, ids), p.max_length - start);
    end = smaller(end, p.num_next_ids - begin);
    for (int64_t j = larger(0, -begin) + lane; j < end; j += 32) {
      store_id(p, seq, start + j, fetch_id(p, seq, j, start + j));
    }
  }
}

// What lies behind the last token, the last page and the last row with an adapter.
__device__ void pad_tails(const GeneralBatchParams& p, const Progress& end, int64_t item,
                          bool is_token_item) {
  if (is_token_item) {
    const Span rows = item_within(item, p.items.tokens_per_item, end.adapter_rows, p.num_tokens);
    for (int64_t t = rows.begin + threadIdx.x; t < rows.end; t += blockDim.x) {
      p.adapter_rows.set(t, -1);
      if (t < end.tokens) continue;
      p.positions.set(t, 0);
      p.kv_slots.set(t, -1);
      p.token_to_seq.set(t, -1);
      p.input_ids.set(t, p.pad_token);
      p.slot_ids.set(t, -1);
    }
  } else {
    const Span pages = item_within(item, kPagesPerItem, end.pages, p.max_pages);
    for (int64_t i = pages.begin + threadIdx.x; i < pages.end; i += blockDim.x) {
      p.pages.set_given(i, p.pad_page);
    }
  }
}

// adapter_indptr: a sum each, kLanesPerSum threads a sum.
__device__ void write_adapter_indptr(const GeneralBatchParams& p, const PlannedWindow& window,
                                     bool is_whole, int64_t num_active, int64_t first_block) {
  const int64_t per_block = blockDim.x / kLanesPerSum, num_blocks = gridDim.x - 1;
  // The blocks that have most of the other items begin last.
  const int64_t block = (blockIdx.x - 1 + num_blocks - first_block % num_blocks) % num_blocks;
  for (int64_t base = block * per_block; base <= p.num_slots; base += num_blocks * per_block) {
    const int64_t slot = base + threadIdx.x / kLanesPerSum;
    const int64_t before = adapter_rows_before(p, window, is_whole, num_active, slot, 0);
    if (slot <= p.num_slots && threadIdx.x % kLanesPerSum == 0) {
      p.adapter_indptr.set_given(slot, before);
    }
  }
}

// All outputs of prepare_batch. Blocks of items.threads, at least as many as requests where they
// are few; grid items.blocks.
__global__ void __launch_bounds__(kSeqsPerWindow)
    prepare_batch_kernel(const __grid_constant__ GeneralBatchParams p) {
  __shared__ PlannedWindow window;
  __shared__ SegmentScratch segment_scratch;
  __shared__ int overflow;
  const int window_seqs = static_cast<int>(blockDim.x);
  const bool is_whole = p.num_seqs <= window_seqs;
  if (threadIdx.x == 0) {
    window.cut_seq = static_cast<unsigned long long>(p.num_seqs);
    overflow = 0;
  }
  __syncthreads();

  if (!is_whole && blockIdx.x > 0 && p.adapter_indptr.is_given()) {  // where requests are cut
    Progress progress;
    for (int64_t first = 0; first < p.num_seqs; first += window_seqs) {
      plan_window(p, first, window, progress);
      __syncthreads();
    }
  }
  Progress progress;
  if (blockIdx.x == 0) {
    Segments segments;
    int flags = 0;
    for (int64_t first = 0; first < p.num_seqs; first += window_seqs) {
      const PlannedSeq plan = plan_window(p, first, window, progress);
      write_seq(p, first + threadIdx.x, window, plan);
      flags |= plan.overflow;
      if (p.adapter_slots.is_given()) {
        write_segments(p, window, segment_scratch, segments);
      }
      __syncthreads();
    }
    finish_segments(p, segments, progress.tokens);
    if (flags != 0) atomicOr(&overflow, flags);
    __syncthreads();
    if (threadIdx.x > 0) return;
    p.q_indptr.set(0, 0);
    p.page_indptr.set(0, 0);
    p.overflow.set(0, overflow | (segments.count > p.num_segments ? kSegmentOverflow : 0));
    return;
  }

  const int64_t pages_end = p.items.token_items + p.items.page_items;
  const int64_t items = pages_end + p.items.table_items, step = gridDim.x - 1;
  const int64_t num_active = num_active_of(p);
  for (int64_t first = 0; first < p.num_seqs; first += window_seqs) {
    plan_window(p, first, window, progress);
    for (int64_t item = blockIdx.x - 1; item < items; item += step) {
      if (item < p.items.token_items) {
        write_tokens(p, window, first, is_whole, num_active, item);
      } else if (item < pages_end) {
        write_pages(p, window, first, item - p.items.token_items);
      } else {
        write_table(p, window, first, item - pages_end);
      }
    }
    if (p.has_loose_ids) write_loose_ids(p, window, first);
    __syncthreads();
  }
  for (int64_t item = blockIdx.x - 1; item < pages_end; item += step) {
    const bool is_token_item = item < p.items.token_items;
    pad_tails(p, progress, is_token_item ? item : item - p.items.token_items, is_token_item);
  }
  if (p.adapter_indptr.is_given()) {
    write_adapter_indptr(p, window, is_whole, num_active, items);
  }
}

}  // namespace

void prepare_batch(const ExecContext& ctx, const PrepareBatchParams& p) {
  const PrepareBatchKernel kernel = select_prepare_batch_kernel(p);
  const PrepareBatchItems items = select_prepare_batch_items(p, ctx.info.num_sms);
  log_choice("prepare_batch", kernel);
  if (kernel != PrepareBatchKernel::kGeneral) {
    prepare_small_batch(ctx, p, items, kernel);
    return;
  }
  prepare_batch_kernel<<<items.blocks, items.threads, 0, ctx.stream>>>(
      pack<GeneralTensors>(p, items));
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::metadata
