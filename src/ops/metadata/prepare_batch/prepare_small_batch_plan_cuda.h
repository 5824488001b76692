#pragma once

#include "ops/metadata/indices_cuda.h"
#include "ops/metadata/prepare_batch/prepare_batch_cuda_params.h"

// The plan of a small batch: of at most as many requests as a block has threads, with sums that fit
// 32 bits. Every block makes it for itself, a request per thread.

namespace heddle::cuda::metadata {

inline constexpr int kSmallThreads = kFewSeqs, kSmallWarps = kSmallThreads / 32;

template <class Number>
struct SmallPlan {
  int32_t first_token[kSmallThreads], first_page[kSmallThreads + 1];
  uint2 slot_tokens[kSmallThreads];  // a request without adapter has the highest slot
  Number start[kSmallThreads], slot[kSmallThreads];
  Number next_begin[kSmallThreads], next_end[kSmallThreads], prompt[kSmallThreads];
  Number given_begin[kSmallThreads], num_given[kSmallThreads];  // pages
  uint32_t scratch[2][3][kSmallWarps];
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

/// Tokens and pages of the requests in front of this thread's, and totals of those and of rows with
/// an adapter. A barrier within.
__device__ inline uint2 sums_before(uint3 x, uint32_t (&scratch)[3][kSmallWarps], uint3& total) {
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
  const uint32_t tokens = scratch[0][lane % kSmallWarps], pages = scratch[1][lane % kSmallWarps];
  const bool is_sum = lane < kSmallWarps, is_before = lane < warp;
  const uint2 before{sum.x - x.x + __reduce_add_sync(kAllLanes, is_before ? tokens : 0),
                     sum.y - x.y + __reduce_add_sync(kAllLanes, is_before ? pages : 0)};
  total = {__reduce_add_sync(kAllLanes, is_sum ? tokens : 0),
           __reduce_add_sync(kAllLanes, is_sum ? pages : 0),
           __reduce_add_sync(kAllLanes, is_sum ? scratch[2][lane % kSmallWarps] : 0)};
  return before;
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

/// How many pages a request is given, of which seq_page_indptr, if there is one, says [begin, end):
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

/// Plans the request of this thread; a barrier follows before others see it.
template <class P>
__device__ SmallSeq<typename P::Number> plan_seq(const P& p, SmallPlan<typename P::Number>& plan,
                                                 SmallTotals& totals) {
  using Number = typename P::Number;
  const int r = threadIdx.x;
  const bool in_range = r < p.num_seqs;
  // All reads at once. Those of padding are made, too, so that nothing waits for num_active.
  const LoadedIndex active = load_input(p.num_active, 0),
                    cache = load_input(p.cache_lengths, r, in_range),
                    accepted = load_input(p.accepted_lengths, r, in_range),
                    input = load_input(p.input_lengths, r, in_range),
                    adapter = load_input(p.adapter_slots, r, in_range),
                    given_begin = load_input(p.seq_page_indptr, r, in_range),
                    given_end = load_input(p.seq_page_indptr, r + 1, in_range),
                    next_begin = load_input(p.next_indptr, r, in_range),
                    next_end = load_input(p.next_indptr, r + 1, in_range),
                    prompt = load_input(p.prompt_lengths, r, in_range);
  const bool is_active = in_range && (!p.num_active.is_given() || r < active.value());
  SmallSeq<Number> seq;
  Number asked = 0, slot = -1;
  if (is_active) {
    seq.start = bounded_length<P>(number_of<P>(cache));
    if (p.accepted_lengths.is_given()) {
      const Number most = P::Tensors::kMaxTokens;
      const Number bounded_accepted = larger(-most, smaller(number_of<P>(accepted), most));
      seq.start += bounded_length<P>(bounded_accepted + p.accepted_extra);
    }
    asked = p.input_lengths.is_given() ? bounded_length<P>(number_of<P>(input)) : p.tokens_per_seq;
    const Number given_slot = number_of<P>(adapter);
    if (p.adapter_slots.is_given() && given_slot >= 0 && given_slot < p.num_slots) {
      slot = given_slot;
    }
  }
  const Number given = num_given_pages(p, number_of<P>(given_begin), number_of<P>(given_end));
  const Number max_pages = smaller(smaller(given, p.table_width), p.max_pages);
  const auto needed_pages = [&](Number tokens) {
    if (p.page_size == 0 || !is_active) return Number{0};
    return pages_in(p, seq.start + tokens + p.page_size - 1);
  };
  const auto sums_for = [&](Number tokens) {
    const auto bounded_tokens = static_cast<uint32_t>(smaller(tokens, p.num_tokens + 1));
    return uint3{bounded_tokens, static_cast<uint32_t>(smaller(needed_pages(tokens), max_pages)),
                 slot >= 0 ? bounded_tokens : 0};
  };
  const auto num_tokens = static_cast<uint32_t>(p.num_tokens);
  const auto capped = [](uint32_t x, Number cap) {  // the cap may be far above 32 bits
    return static_cast<Number>(smaller(int64_t{x}, int64_t{cap}));
  };
  uint3 total;
  uint2 before = sums_before(sums_for(asked), plan.scratch[0], total);
  const Number first_token = capped(before.x, p.num_tokens);
  const Number tokens = smaller(asked, p.num_tokens - first_token);
  totals.tokens = static_cast<int32_t>(total.x < num_tokens ? total.x : num_tokens);
  if (total.x > num_tokens) {  // once more with the tokens that there are
    before = sums_before(sums_for(tokens), plan.scratch[1], total);
  }
  const Number needed = needed_pages(tokens), covered_pages = smaller(needed, given);
  const Number first_page = capped(before.y, p.max_pages);
  const Number room = smaller(p.table_width, p.max_pages - first_page);
  const Number pages = smaller(covered_pages, room);
  seq.kv_length = pages < needed ? pages * p.page_size : seq.start + tokens;
  seq.last_page_len = pages > 0 ? seq.kv_length - (pages - 1) * p.page_size : 0;
  seq.overflow = (tokens < asked ? kTokenOverflow : 0) | (needed > given ? kMissingPages : 0) |
                 (covered_pages > room ? kPageOverflow : 0);
  totals.pages = static_cast<int32_t>(capped(total.y, p.max_pages));
  totals.adapter_rows = static_cast<int32_t>(total.z);

  plan.first_token[r] = static_cast<int32_t>(first_token);
  plan.first_page[r] = static_cast<int32_t>(first_page);
  if (r == kSmallThreads - 1) plan.first_page[r + 1] = totals.pages;
  plan.slot_tokens[r] = {static_cast<uint32_t>(slot), static_cast<uint32_t>(tokens)};
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
