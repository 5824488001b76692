#pragma once

// Where the keys and values of a sequence lie, on the device. The walk of a kernel over a sequence:
//
//   const SequencePages seq = sequence_pages(p, i);         // three loads, at once
//   if (seq.is_wrong()) report_sequence(p, "op", i);        // it has no keys then
//   for each position in [0, seq.kv_len):
//     const PageSlot at = page_slot(p, position);           // no load: a multiplication
//     // One load, shared by the slots of a page:
//     const int64_t id = p.pages[seq.first_page + at.page];
//     if (!is_page(p, id)) report_page(p, "op", i, id);     // there is nothing to read
//     const std::byte* page = page_address(p, id);
//     const std::byte* key = page + row_offset(p, kv_head, at.slot);  // + value_distance: value
//
// Nothing outside [0, kv_len) may be read: entries of the table after a sequence's pages are wild,
// slots past its end hold NaN.

#include <cstdint>

#include "cuda/fault_cuda.h"
#include "cuda/index_cuda.h"

#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

struct SequencePages {
  int64_t first_page;  // index of its first page in the table
  int kv_len;          // tokens, 0 without pages

  /// What the table says of the sequence is out of range; then it has no tokens here.
  [[nodiscard]] __device__ bool is_wrong() const { return first_page < 0; }
};

/// The sequence of the pages [begin, end), whose last has `last` tokens. Without branches. Of one
/// with more than 2^31 tokens, which no contract allows, some number that its pages hold, or none.
__device__ inline SequencePages pages_between(const PagedKvParams& p, int64_t begin, int64_t end,
                                              int64_t last) {
  const auto page_size = static_cast<uint32_t>(p.page_size);
  const auto kv_len = static_cast<int>(static_cast<uint32_t>(end - begin - 1) * page_size +
                                       static_cast<uint32_t>(last));
  const bool has_pages = begin != end;
  const bool is_length = (static_cast<uint64_t>(last - 1) < page_size) & (kv_len >= 0);
  const bool in_table = (static_cast<uint64_t>(begin) <= static_cast<uint64_t>(end)) &
                        (static_cast<uint64_t>(end) <= p.table_pages);
  const bool is_right = in_table & (is_length | !has_pages);
  return {is_right ? begin : -1, is_right & has_pages ? kv_len : 0};
}

/// The loads, then what follows from them.
struct SequenceWords {
  LoadedIndex begin, end, last;
};
__device__ inline SequenceWords ask_sequence(const PagedKvParams& p, int64_t seq) {
  return {load_given(p.page_indptr, seq), load_given(p.page_indptr, seq + 1),
          load_given(p.last_page_len, seq)};
}
__device__ inline SequencePages sequence_pages(const PagedKvParams& p, const SequenceWords& words) {
  return pages_between(p, p.page_indptr.value_of(words.begin), p.page_indptr.value_of(words.end),
                       p.last_page_len.value_of(words.last));
}
__device__ inline SequencePages sequence_pages(const PagedKvParams& p, int64_t seq) {
  return sequence_pages(p, ask_sequence(p, seq));
}

/// The pages of a sequence by a table that the kernel in front may still write.
__device__ inline SequencePages stale_pages(const PagedKvParams& p, int64_t seq) {
  const int64_t begin = load_given<load_changing_word_if>(p.page_indptr, seq).value(),
                end = load_given<load_changing_word_if>(p.page_indptr, seq + 1).value(),
                last = load_given<load_changing_word_if>(p.last_page_len, seq).value();
  return pages_between(p, begin, end, last);
}

struct PageSlot {
  int page, slot;  // of a sequence, of the page
};

__device__ inline PageSlot page_slot(const PagedKvParams& p, int position) {
  const int page = divide(position, p.by_page_size);
  return {page, position - page * p.page_size};
}

/// Whether an entry of the table is a page: a number of the pool, or an address. Without branches.
__device__ inline bool is_page(const PagedKvParams& p, int64_t id) {
  const bool has_pool = p.pool != nullptr, in_pool = static_cast<uint64_t>(id) < p.pool_pages;
  return (has_pool & in_pool) | (!has_pool & (id > 0));
}
/// The address of a page, its offset to the layer's keys included.
__device__ inline std::byte* page_address(const PagedKvParams& p, int64_t id) {
  const auto pool = reinterpret_cast<intptr_t>(p.pool);  // 0 for tables of addresses
  return reinterpret_cast<std::byte*>(pool + id * p.page_step + p.key_offset);
}
/// In place of an address of what would lie in no page: it stays negative with any offset added.
inline constexpr int64_t kNoAddress = -(int64_t{1} << 62);

/// From page_address() to the key of (kv head, slot).
__device__ inline int64_t row_offset(const PagedKvParams& p, int kv_head, int slot) {
  return kv_head * p.head_step + slot * p.slot_step;
}

/// Where the scale of the key of (page, kv head, slot) lies; + value_distance: that of its value.
__device__ inline std::byte* scale_address(const KvScaleParams& p, int64_t id, int kv_head,
                                           int slot) {
  const auto pool = reinterpret_cast<intptr_t>(p.pool);
  return reinterpret_cast<std::byte*>(pool + id * p.page_step + p.key_offset +
                                      kv_head * p.head_step + slot * p.slot_step);
}

/// A word about a sequence that is wrong.
struct WrongWord {
  const char* array;
  int64_t value;
};
__device__ __forceinline__ WrongWord wrong_word(const PagedKvParams& p, int64_t seq) {
  const int64_t begin = p.page_indptr[seq], end = p.page_indptr[seq + 1];
  if (begin < 0 || begin > int64_t{p.table_pages}) return {"page_indptr", begin};
  if (end < begin || end > int64_t{p.table_pages}) return {"page_indptr", end};
  return {"last_page_len", p.last_page_len[seq]};
}
/// Tells which word about a sequence is wrong.
__device__ inline __noinline__ void report_sequence(const PagedKvParams& p, const char* op,
                                                    int64_t seq) {
  const WrongWord word = wrong_word(p, seq);
  report_fault(p.faults, op, word.array, seq, word.value);
}
/// Tells that an entry of the table is no page.
__device__ inline void report_page(const PagedKvParams& p, const char* op, int64_t seq,
                                   int64_t id) {
  report_fault(p.faults, op, "pages", seq, id);
}

}  // namespace heddle::cuda::attention
