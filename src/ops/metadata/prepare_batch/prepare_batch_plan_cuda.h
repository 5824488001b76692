#pragma once

#include "ops/metadata/indices_cuda.h"
#include "ops/metadata/prepare_batch/prepare_batch_cuda_params.h"

// The plan of prepare_batch on the device. Every block makes it for itself: a window of as many
// requests as it has threads at a time, by sums over its threads. So no block waits for another,
// and a small batch is planned once.

namespace heddle::cuda::metadata {

/// How many pages a request is given, of which seq_page_indptr, if there is one, says [begin, end):
/// any number where none are.
__device__ inline int64_t num_given_pages(const GeneralBatchParams& p, int64_t begin, int64_t end) {
  if (!p.has_given_pages) return kHuge;
  if (!p.seq_page_indptr.is_given()) return p.given_pages;
  begin = bounded(begin);
  end = smaller(bounded(end), p.given_pages);
  return begin >= 0 && begin < end ? end - begin : 0;
}

/// The pages that the caller has given to a request, in use or not; see heddle::pages_of.
struct GivenPages {
  ConstIndexVector pages;
  int64_t size;
};
__device__ inline GivenPages pages_of(const GeneralBatchParams& p, int64_t seq) {
  if (!p.seq_page_indptr.is_given()) {
    return {p.seq_page_table.row_given(seq), p.given_pages};
  }
  const int64_t begin = load_input(p.seq_page_indptr, seq).value(),
                end = load_input(p.seq_page_indptr, seq + 1).value();
  GivenPages given{p.seq_pages, num_given_pages(p, begin, end)};
  if (given.size > 0) given.pages = p.seq_pages.from(begin);
  return given;
}

/// A request's adapter and how many rows it has.
struct __align__(16) SlotTokens {
  int64_t slot, tokens;
};

/// What all blocks know of a window's requests; request r of the window is first_seq + r.
struct PlannedWindow {
  int64_t first_token[kSeqsPerWindow + 1], first_page[kSeqsPerWindow + 1];
  int64_t start[kSeqsPerWindow];
  SlotTokens slots[kSeqsPerWindow];
  int64_t adapter_place
      [kSeqsPerWindow];  // of an item's requests: where their rows begin in adapter_rows
  Sums<3> scratch[2][kMaxWarps];
  unsigned long long cut_seq;  // the first request that has less tokens than it asks for,
  int64_t cut_tokens;          // and how many it has
};

/// Up to where the windows so far have come.
struct Progress {
  int64_t tokens = 0, pages = 0, adapter_rows = 0;
};

/// What one thread knows of its request in the window.
struct PlannedSeq {
  int64_t start = 0, kv_length = 0, last_page_len = 0;
  int32_t overflow = 0;
};

__device__ inline int64_t num_active_of(const GeneralBatchParams& p) {
  if (!p.num_active.is_given()) return p.num_seqs;
  return larger(0, smaller(load_input(p.num_active, 0).value(), p.num_seqs));
}
__device__ inline int64_t asked_tokens_of(const GeneralBatchParams& p, int64_t seq) {
  return p.input_lengths.is_given() ? length_of(load_input(p.input_lengths, seq).value())
                                    : p.tokens_per_seq;
}
/// The slot of an adapter that there is, else -1.
__device__ inline int64_t slot_within(const GeneralBatchParams& p, int64_t slot) {
  const bool in_range = p.adapter_slots.is_given() && slot >= 0 && slot < p.num_slots;
  return in_range ? slot : -1;
}
__device__ inline int64_t slot_of(const GeneralBatchParams& p, int64_t seq) {
  return slot_within(p, load_input(p.adapter_slots, seq).value());
}

/// Plans the requests [first_seq, first_seq + blockDim.x), as far as they are there. All threads; a
/// barrier lies before the next call. When it returns, all threads see the window, and `progress`
/// includes it.
__device__ inline PlannedSeq plan_window(const GeneralBatchParams& p, int64_t first_seq,
                                         PlannedWindow& window, Progress& progress) {
  const int r = threadIdx.x, last = static_cast<int>(blockDim.x) - 1;
  const int64_t seq = first_seq + r;
  // All reads at once. Those of padding are made, too, so that nothing waits for num_active.
  const bool in_range = seq < p.num_seqs;
  const LoadedIndex active = load_input(p.num_active, 0),
                    cache = load_input(p.cache_lengths, seq, in_range),
                    accepted = load_input(p.accepted_lengths, seq, in_range),
                    input = load_input(p.input_lengths, seq, in_range),
                    adapter = load_input(p.adapter_slots, seq, in_range),
                    pages_begin = load_input(p.seq_page_indptr, seq, in_range),
                    pages_end = load_input(p.seq_page_indptr, seq + 1, in_range);
  const bool is_active = in_range && (!p.num_active.is_given() || seq < active.value());
  PlannedSeq plan;
  int64_t asked = 0, slot = -1;
  if (is_active) {
    plan.start = length_of(cache.value());
    if (p.accepted_lengths.is_given()) {
      plan.start += length_of(bounded(accepted.value()) + p.accepted_extra);
    }
    asked = p.input_lengths.is_given() ? length_of(input.value()) : p.tokens_per_seq;
    slot = slot_within(p, adapter.value());
  }
  const int64_t given = num_given_pages(p, pages_begin.value(), pages_end.value());

  const auto needed_pages = [&](int64_t tokens) {
    if (p.page_size == 0 || !is_active) return int64_t{0};
    return divide_nonnegative(plan.start + tokens + p.page_size - 1, p.page_size);
  };
  const auto sums_for = [&](int64_t tokens) {
    const int64_t pages = smaller(smaller(needed_pages(tokens), given), p.table_width);
    return Sums<3>{{asked, pages, slot >= 0 ? tokens : 0}};
  };
  const Sums<3> cap{{p.num_tokens, p.max_pages, kHuge}};
  // As if no request were cut; else once more with the tokens that there are.
  Sums<3> total, before = block_sums_before(sums_for(asked), cap, window.scratch[0], total);
  const int64_t first_token = smaller(progress.tokens + before.of[0], p.num_tokens);
  const int64_t tokens = smaller(asked, p.num_tokens - first_token);
  if (__syncthreads_or(tokens < asked) != 0) {
    before = block_sums_before(sums_for(tokens), cap, window.scratch[1], total);
    if (tokens < asked) atomicMin(&window.cut_seq, static_cast<unsigned long long>(seq));
  }
  const int64_t needed = needed_pages(tokens), covered_pages = smaller(needed, given);
  const int64_t first_page = smaller(progress.pages + before.of[1], p.max_pages);
  const int64_t room = smaller(p.table_width, p.max_pages - first_page);
  const int64_t pages = smaller(covered_pages, room);
  plan.kv_length = pages < needed ? pages * p.page_size : plan.start + tokens;
  plan.last_page_len = pages > 0 ? plan.kv_length - (pages - 1) * p.page_size : 0;
  plan.overflow = (tokens < asked ? kTokenOverflow : 0) | (needed > given ? kMissingPages : 0) |
                  (covered_pages > room ? kPageOverflow : 0);

  window.first_token[r] = first_token;
  window.first_page[r] = first_page;
  window.start[r] = plan.start;
  window.slots[r] = {slot, tokens};
  if (r == last) {
    window.first_token[r + 1] = first_token + tokens;
    window.first_page[r + 1] = first_page + pages;
  }
  __syncthreads();
  if (tokens < asked && window.cut_seq == static_cast<unsigned long long>(seq)) {
    window.cut_tokens = tokens;
  }
  progress.tokens = window.first_token[last + 1];
  progress.pages = window.first_page[last + 1];
  progress.adapter_rows = smaller(progress.adapter_rows + total.of[2], kHuge);
  return plan;
}

/// The rows in adapter_rows before those of request `seq`, whose adapter is in `slot`: all of lower
/// slots, and those of the slot's earlier requests. kLanesPerSum neighbours share a sum and all get
/// it; whole warps. `window` holds the plan where `is_whole`, when one window holds all requests;
/// else find_cut has set what it says of a cut.
__device__ inline int64_t adapter_rows_before(const GeneralBatchParams& p,
                                              const PlannedWindow& window, bool is_whole,
                                              int64_t num_active, int64_t slot, int64_t seq) {
  int64_t sum = 0;
  const auto add = [&](int64_t other, const SlotTokens& t) {
    const bool is_before = t.slot < slot || (t.slot == slot && other < seq);
    if (t.slot >= 0 && is_before) sum += t.tokens;
  };
  const int lane = threadIdx.x % kLanesPerSum;
  if (is_whole) {
    const int count = static_cast<int>(p.num_seqs);
#pragma unroll 4
    for (int other = lane; other < count; other += kLanesPerSum) add(other, window.slots[other]);
  } else {
    const int64_t cut = static_cast<int64_t>(window.cut_seq);
    const int64_t end = smaller(num_active, cut);
#pragma unroll 4
    for (int64_t other = lane; other < end; other += kLanesPerSum) {
      add(other, {slot_of(p, other), asked_tokens_of(p, other)});
    }
    if (lane == 0 && cut < num_active) add(cut, {slot_of(p, cut), window.cut_tokens});
  }
  for (int distance = kLanesPerSum / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  return sum;
}

}  // namespace heddle::cuda::metadata
