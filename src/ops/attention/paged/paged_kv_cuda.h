#pragma once

// Where the keys and values of a sequence lie, on the device. The walk of a kernel over a sequence:
//
//   const SequencePages seq = sequence_pages(p, i);         // three loads, at once
//   for each position in [0, seq.kv_len):
//     const PageSlot at = page_slot(p, position);           // no load: a multiplication
//     // One load, shared by the slots of a page:
//     const std::byte* page = page_address(p, seq.first_page + at.page);
//     const std::byte* key = page + row_offset(p, kv_head, at.slot);  // + value_distance: value
//
// Nothing outside [0, kv_len) may be read: entries of the table behind a sequence's pages are wild,
// slots past its end hold NaN.

#include <cstdint>

#include "cuda/load_cuda.h"

#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

/// Two loads of words, the second for i64 alone, that are joined where the value is needed: with a
/// branch between loads of 4 and of 8 bytes, no load could begin before the one in front of it has
/// ended.
struct IndexWords {
  uint32_t low, high;
};
template <auto kLoadIf = load_word_if>
__device__ IndexWords ask_index(const IndexParams& a, int64_t i) {
  const std::byte* element = a.data + i * a.stride * (a.is_int64 ? 8 : 4);
  return {kLoadIf(element, true), kLoadIf(element + 4, a.is_int64)};
}
__device__ inline int64_t join_index(const IndexParams& a, IndexWords words) {
  return a.is_int64 ? static_cast<int64_t>(uint64_t{words.high} << 32 | words.low)
                    : int64_t{static_cast<int32_t>(words.low)};
}
template <auto kLoadIf = load_word_if>
__device__ int64_t read_index(const IndexParams& a, int64_t i) {
  return join_index(a, ask_index<kLoadIf>(a, i));
}

/// n / d for 0 <= n < 2^31.
__device__ inline int divide(int n, Divisor d) {
  const uint32_t quotient = __umulhi(static_cast<uint32_t>(n), d.multiplier) >> d.shift;
  return d.multiplier == 0 ? n : static_cast<int>(quotient);
}

struct SequencePages {
  int64_t first_page;  // index of its first page in the table
  int kv_len;          // tokens, 0 without pages
};

/// The loads, then what follows from them.
struct SequenceWords {
  IndexWords begin, end, last;
};
__device__ inline SequenceWords ask_sequence(const PagedKvParams& p, int64_t seq) {
  return {ask_index(p.page_indptr, seq), ask_index(p.page_indptr, seq + 1),
          ask_index(p.last_page_len, seq)};
}
__device__ inline SequencePages sequence_pages(const PagedKvParams& p, const SequenceWords& words) {
  const int64_t begin = join_index(p.page_indptr, words.begin),
                end = join_index(p.page_indptr, words.end);
  const auto last = static_cast<int>(join_index(p.last_page_len, words.last));
  const auto whole = static_cast<int>(end - begin - 1) * p.page_size;
  return {begin, end > begin ? whole + last : 0};
}
__device__ inline SequencePages sequence_pages(const PagedKvParams& p, int64_t seq) {
  return sequence_pages(p, ask_sequence(p, seq));
}

struct PageSlot {
  int page, slot;  // of a sequence, of the page
};

__device__ inline PageSlot page_slot(const PagedKvParams& p, int position) {
  const int page = divide(position, p.by_page_size);
  return {page, position - page * p.page_size};
}

/// The address of the page at `index` of the table, its offset to the layer's keys included.
__device__ inline std::byte* page_address(const PagedKvParams& p, IndexWords page) {
  const auto pool = reinterpret_cast<intptr_t>(p.pool);  // 0 for tables of addresses
  return reinterpret_cast<std::byte*>(pool + join_index(p.pages, page) * p.page_step +
                                      p.key_offset);
}
__device__ inline std::byte* page_address(const PagedKvParams& p, int64_t index) {
  return page_address(p, ask_index(p.pages, index));
}

/// From page_address() to the key of (kv head, slot).
__device__ inline int64_t row_offset(const PagedKvParams& p, int kv_head, int slot) {
  return kv_head * p.head_step + slot * p.slot_step;
}

}  // namespace heddle::cuda::attention
