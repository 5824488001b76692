#pragma once

#include <type_traits>

#include "ops/metadata/indices_cuda.h"
#include "ops/metadata/prepare_batch/prepare_batch_cuda_params.h"

// The plan of prepare_batch on the device. Every block makes it for itself, so that no block waits
// for another: a window of as many requests as it has threads, one each, by sums over its threads.
// A small batch has one window, and sums that fit 32 bits.

namespace heddle::cuda::metadata {

/// A request's adapter and how many rows it has; a request without adapter has the highest slot.
template <class Word>
struct alignas(2 * sizeof(Word)) SlotTokens {
  Word slot, tokens;
};
/// Sums over requests.
template <class Word>
struct BatchSums {
  Word tokens, pages, adapter_rows;
};
using SmallScratch = uint32_t[3][kFewSeqs / 32];
using LargeScratch = Sums<3>[kMaxWarps];

/// What a batch of several windows needs more than one of one.
template <bool kHasWindows>
struct WindowsOfBatch {
  using Scratch = SmallScratch;
};
template <>
struct WindowsOfBatch<true> {
  using Scratch = LargeScratch;

  int64_t first_seq;   // of the window
  int64_t num_active;  // requests of the batch that are no padding
  int64_t cut_seq;     // the first request that gets fewer tokens than it has,
  int64_t cut_tokens;  // and how many it gets
};

/// The plan of a window's requests, which all threads of the block read.
template <class P>
struct BatchWindow : WindowsOfBatch<P::Tensors::kHasWindows> {
  using Place = typename P::Place;
  using Number = typename P::Number;
  using Word = std::make_unsigned_t<Place>;
  static constexpr int kThreads = P::Tensors::kThreads;

  Place first_token[kThreads], first_page[kThreads + 1];
  SlotTokens<Word> slot_tokens[kThreads];
  Number start[kThreads], slot[kThreads];
  Number next_begin[kThreads], next_end[kThreads], prompt[kThreads];
  Number given_begin[kThreads], num_given[kThreads];  // pages
  typename WindowsOfBatch<P::Tensors::kHasWindows>::Scratch scratch[2];

  /// The request of the batch that is `row` of the window.
  [[nodiscard]] __device__ Place seq_of(int row) const {
    if constexpr (P::Tensors::kHasWindows) {
      return this->first_seq + row;
    } else {
      return row;
    }
  }
};

/// What a thread alone knows of its request.
template <class Number>
struct PlannedSeq {
  Number start = 0, kv_length = 0, last_page_len = 0;
  int32_t overflow = 0;
};

/// Of all requests up to the end of the window.
template <class Place>
struct BatchTotals {
  Place tokens = 0, pages = 0, adapter_rows = 0;
};

/// Tokens and pages of the requests before this thread's, and totals of those and of rows with an
/// adapter. A barrier within.
template <class P>
__device__ BatchSums<uint32_t> sums_before(const P&, const BatchSums<uint32_t>& x,
                                           SmallScratch& scratch, BatchSums<uint32_t>& total) {
  constexpr int kWarps = kFewSeqs / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint2 sum{x.tokens, x.pages};
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t tokens = __shfl_up_sync(kAllLanes, sum.x, distance);
    const uint32_t pages = __shfl_up_sync(kAllLanes, sum.y, distance);
    if (lane >= distance) sum = {sum.x + tokens, sum.y + pages};
  }
  const uint32_t rows = __reduce_add_sync(kAllLanes, x.adapter_rows);
  if (lane == 31) {
    scratch[0][warp] = sum.x;
    scratch[1][warp] = sum.y;
    scratch[2][warp] = rows;
  }
  __syncthreads();
  // The eight sums in a lane each, once more in every eighth one.
  const uint32_t tokens = scratch[0][lane % kWarps], pages = scratch[1][lane % kWarps];
  const bool is_sum = lane < kWarps, is_before = lane < warp;
  const BatchSums<uint32_t> before{
      sum.x - x.tokens + __reduce_add_sync(kAllLanes, is_before ? tokens : 0),
      sum.y - x.pages + __reduce_add_sync(kAllLanes, is_before ? pages : 0), 0};
  total = {__reduce_add_sync(kAllLanes, is_sum ? tokens : 0),
           __reduce_add_sync(kAllLanes, is_sum ? pages : 0),
           __reduce_add_sync(kAllLanes, is_sum ? scratch[2][lane % kWarps] : 0)};
  return before;
}
/// The same where 32 bits may not hold them.
template <class P>
__device__ BatchSums<int64_t> sums_before(const P& p, const BatchSums<int64_t>& x,
                                          LargeScratch& scratch, BatchSums<int64_t>& total) {
  const Sums<3> cap{{p.num_tokens + 1, p.max_pages, kHuge}};
  Sums<3> all;
  const Sums<3> before =
      block_sums_before(Sums<3>{{x.tokens, x.pages, x.adapter_rows}}, cap, scratch, all);
  total = {all.of[0], all.of[1], all.of[2]};
  return {before.of[0], before.of[1], before.of[2]};
}

/// floor(a / page_size) of a number that is not negative.
template <class P>
__device__ typename P::Number pages_in(const P& p, typename P::Number a) {
  if (p.page_shift >= 0) return a >> p.page_shift;
  return divide_nonnegative(a, p.page_size);
}

template <class P>
__device__ typename P::Number bounded_length(int64_t x) {
  constexpr int64_t kMax = P::Tensors::kMaxTokens;
  return static_cast<typename P::Number>(larger(int64_t{0}, smaller(x, kMax)));
}

template <class P>
__device__ int32_t bounded_length(int32_t x) {
  return larger(0, smaller(x, P::Tensors::kMaxTokens));
}
/// As LoadedIndex::value, in the numbers that P has.
template <class P>
__device__ typename P::Number number_of(const LoadedIndex& x) {
  if constexpr (sizeof(typename P::Number) == 4) return static_cast<int32_t>(x.low);
  return static_cast<typename P::Number>(bounded(x.value()));
}

/// How many pages a request is given, of which seq_page_indptr, if it is given, says [begin, end):
/// any number where none are.
template <class P>
__device__ typename P::Number num_given_pages(const P& p, typename P::Number begin,
                                              typename P::Number end) {
  using Number = typename P::Number;
  if (!p.has_given_pages) return P::Tensors::kMaxTokens;
  if (!p.seq_page_indptr.is_given()) return p.given_pages;
  end = smaller(end, p.given_pages);
  return begin >= 0 && begin < end ? end - begin : Number{0};
}
/// The slot of an adapter that exists, else -1.
template <class P>
__device__ typename P::Number slot_within(const P& p, const LoadedIndex& adapter) {
  const typename P::Number slot = number_of<P>(adapter);
  return p.adapter_slots.is_given() && slot >= 0 && slot < p.num_slots ? slot : -1;
}

/// Plans the request of this thread, of the window that begins with first_seq. `totals` are those
/// of the windows before, then with this one. A barrier follows before other threads see the plan.
template <class P>
__device__ PlannedSeq<typename P::Number> plan_seq(const P& p, BatchWindow<P>& plan,
                                                   typename P::Place first_seq,
                                                   BatchTotals<typename P::Place>& totals) {
  using Number = typename P::Number;
  using Place = typename P::Place;
  using Sum = std::conditional_t<P::Tensors::kHasWindows, int64_t, uint32_t>;
  const int r = threadIdx.x;
  const Place i = first_seq + r;
  const bool in_range = i < p.num_seqs;
  // All loads at once. Those of padding are issued, too, so that nothing waits for num_active.
  const LoadedIndex active = load_input(p.num_active, 0),
                    cache = load_input(p.cache_lengths, i, in_range),
                    accepted = load_input(p.accepted_lengths, i, in_range),
                    input = load_input(p.input_lengths, i, in_range),
                    adapter = load_input(p.adapter_slots, i, in_range),
                    given_begin = load_input(p.seq_page_indptr, i, in_range),
                    given_end = load_input(p.seq_page_indptr, i + 1, in_range),
                    next_begin = load_input(p.next_indptr, i, in_range),
                    next_end = load_input(p.next_indptr, i + 1, in_range),
                    prompt = load_input(p.prompt_lengths, i, in_range);
  const bool is_active = in_range && (!p.num_active.is_given() || i < active.value());
  PlannedSeq<Number> seq;
  Number asked = 0, slot = -1;
  if (is_active) {
    seq.start = bounded_length<P>(number_of<P>(cache));
    if (p.accepted_lengths.is_given()) {
      const Number most = P::Tensors::kMaxTokens;
      const Number bounded_accepted = larger(-most, smaller(number_of<P>(accepted), most));
      seq.start += bounded_length<P>(bounded_accepted + p.accepted_extra);
    }
    asked = p.input_lengths.is_given() ? bounded_length<P>(number_of<P>(input)) : p.tokens_per_seq;
    slot = slot_within(p, adapter);
  }
  const Number given = num_given_pages(p, number_of<P>(given_begin), number_of<P>(given_end));
  const Number max_pages = smaller(smaller(given, p.table_width), p.max_pages);
  const auto needed_pages = [&](Number tokens) {
    if (p.page_size == 0 || !is_active) return Number{0};
    return pages_in(p, seq.start + tokens + p.page_size - 1);
  };
  const auto sums_for = [&](Number tokens) {
    const auto bounded_tokens = static_cast<Sum>(smaller(tokens, p.num_tokens + 1));
    return BatchSums<Sum>{bounded_tokens,
                          static_cast<Sum>(smaller(needed_pages(tokens), max_pages)),
                          slot >= 0 ? bounded_tokens : 0};
  };
  const auto capped = [](Sum x, Number cap) {  // the cap may be far above 32 bits
    return static_cast<Number>(smaller(int64_t{x}, int64_t{cap}));
  };
  const auto tokens_left = static_cast<Sum>(p.num_tokens - totals.tokens);
  BatchSums<Sum> total, before = sums_before(p, sums_for(asked), plan.scratch[0], total);
  const Number first_token = totals.tokens + capped(before.tokens, p.num_tokens - totals.tokens);
  const Number tokens = smaller(asked, p.num_tokens - first_token);
  if constexpr (P::Tensors::kHasWindows) {
    if (r == 0) {
      plan.first_seq = first_seq;
      plan.num_active = p.num_active.is_given() ? smaller(active.value(), p.num_seqs) : p.num_seqs;
    }
    // Later requests of the window that are cut have more tokens before them than are left.
    if (tokens < asked && before.tokens <= tokens_left && i < plan.cut_seq) {
      plan.cut_seq = i;
      plan.cut_tokens = tokens;
    }
  }
  if (total.tokens > tokens_left) {  // once more with the tokens that are left
    before = sums_before(p, sums_for(tokens), plan.scratch[1], total);
  }
  const Number needed = needed_pages(tokens), covered_pages = smaller(needed, given);
  const Number first_page = totals.pages + capped(before.pages, p.max_pages - totals.pages);
  const Number room = smaller(p.table_width, p.max_pages - first_page);
  const Number pages = smaller(covered_pages, room);
  seq.kv_length = pages < needed ? pages * p.page_size : seq.start + tokens;
  seq.last_page_len = pages > 0 ? seq.kv_length - (pages - 1) * p.page_size : 0;
  seq.overflow = (tokens < asked ? kTokenOverflow : 0) | (needed > given ? kMissingPages : 0) |
                 (covered_pages > room ? kPageOverflow : 0);
  totals.tokens += static_cast<Place>(total.tokens < tokens_left ? total.tokens : tokens_left);
  totals.pages += static_cast<Place>(capped(total.pages, p.max_pages - totals.pages));
  totals.adapter_rows += static_cast<Place>(total.adapter_rows);

  plan.first_token[r] = static_cast<Place>(first_token);
  plan.first_page[r] = static_cast<Place>(first_page);
  if (r == P::Tensors::kThreads - 1) plan.first_page[r + 1] = totals.pages;
  using Word = typename BatchWindow<P>::Word;
  plan.slot_tokens[r] = {static_cast<Word>(slot), static_cast<Word>(tokens)};
  plan.start[r] = seq.start;
  plan.slot[r] = slot;
  if (p.next_indptr.is_given()) {
    plan.next_begin[r] = number_of<P>(next_begin);
    plan.next_end[r] = number_of<P>(next_end);
    plan.prompt[r] = number_of<P>(prompt);
  }
  plan.given_begin[r] = number_of<P>(given_begin);
  plan.num_given[r] = given;
  return seq;
}

}  // namespace heddle::cuda::metadata
