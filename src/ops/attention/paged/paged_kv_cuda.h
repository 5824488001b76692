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

#include "cuda/index_cuda.h"

#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

struct SequencePages {
  int64_t first_page;  // index of its first page in the table
  int kv_len;          // tokens, 0 without pages
};

/// The loads, then what follows from them.
struct SequenceWords {
  LoadedIndex begin, end, last;
};
__device__ inline SequenceWords ask_sequence(const PagedKvParams& p, int64_t seq) {
  return {load_given(p.page_indptr, seq), load_given(p.page_indptr, seq + 1),
          load_given(p.last_page_len, seq)};
}
__device__ inline SequencePages sequence_pages(const PagedKvParams& p, const SequenceWords& words) {
  const int64_t begin = words.begin.value(), end = words.end.value();
  const auto last = static_cast<int>(words.last.value());
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
__device__ inline std::byte* page_address(const PagedKvParams& p, LoadedIndex page) {
  const auto pool = reinterpret_cast<intptr_t>(p.pool);  // 0 for tables of addresses
  return reinterpret_cast<std::byte*>(pool + p.pages.value_of(page) * p.page_step + p.key_offset);
}
__device__ inline std::byte* page_address(const PagedKvParams& p, int64_t index) {
  return page_address(p, load_given(p.pages, index));
}

/// From page_address() to the key of (kv head, slot).
__device__ inline int64_t row_offset(const PagedKvParams& p, int kv_head, int slot) {
  return kv_head * p.head_step + slot * p.slot_step;
}

}  // namespace heddle::cuda::attention
