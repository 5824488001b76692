#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <type_traits>

#include "cuda/index.h"

#include "core/math.h"
#include "ops/metadata/prepare_batch/prepare_batch_kernels.h"

// A call of prepare_batch as its kernel takes it: half the size of PrepareBatchParams, since every
// launch copies it.

namespace heddle::cuda::metadata {

/// How the work of one launch is partitioned into items, which go round the warps of all blocks but
/// the first.
struct PrepareBatchItems {
  int64_t tokens_per_item = 0;
  int64_t token_items = 0, adapter_items = 0, page_items = 0, table_items = 0, slot_items = 0;
  unsigned blocks = 0;
};

/// Threads of a block, and requests of a window: of one that holds all requests, else of many.
inline constexpr int kFewSeqs = 256, kSeqsPerWindow = 512, kThreadsPerSm = 1024;
inline constexpr int64_t kPagesPerItem = 128, kMaxTokensPerItem = 32;

/// Whether a window holds all requests and 32 bits all sums.
[[nodiscard]] inline bool is_small_batch(const PrepareBatchParams& p) {
  const int64_t given_pages = !p.pages_are_given  ? kHuge
                              : p.seq_page_indptr ? p.seq_pages.size
                                                  : p.seq_page_table.width;
  const int64_t pages = std::min({p.max_pages, p.table_width, given_pages});
  const int64_t slots = p.adapter_indptr.size;
  return p.num_seqs <= kFewSeqs && p.has_token_outputs && p.num_tokens < kSmallSum &&
         (p.page_size == 0 || pages < kSmallSum) && p.pages.size < (1 << 30) &&
         p.page_table.rows * p.page_table.width < (1 << 30) && slots < (1 << 30);
}

[[nodiscard]] inline bool has_loose_ids(const PrepareBatchParams& p) {
  return !p.has_token_outputs && p.all_input_ids && p.next_input_ids;
}

[[nodiscard]] inline PrepareBatchItems select_prepare_batch_items(const PrepareBatchParams& p,
                                                                  int num_sms) {
  const int64_t threads = is_small_batch(p) ? kFewSeqs : kSeqsPerWindow, warps = threads / 32;
  PrepareBatchItems s;
  s.page_items = ceil_div(p.pages.size, kPagesPerItem);
  s.table_items = ceil_div(p.page_table.rows * p.page_table.width, kPagesPerItem);
  s.slot_items = p.adapter_indptr.size;
  int64_t all = 0;
  // A block per multiprocessor, or as few more as can be: each of them plans anew.
  for (s.tokens_per_item = 1;; s.tokens_per_item *= 2) {
    if (p.has_token_outputs) s.token_items = ceil_div(p.num_tokens, s.tokens_per_item);
    s.adapter_items = p.adapter_rows ? s.token_items : 0;
    all = s.token_items + s.adapter_items + s.page_items + s.table_items + s.slot_items;
    if (all <= warps * (num_sms - 1) || s.tokens_per_item == kMaxTokensPerItem) break;
  }
  if (has_loose_ids(p)) all += p.num_seqs;
  const int64_t most = int64_t{num_sms} * (kThreadsPerSm / threads);
  s.blocks = 1 + static_cast<unsigned>(std::min(ceil_div(all, warps), most));
  return s;
}

/// Tensors as BatchParams holds them, and the numbers that go with them.
template <IndexLayout kLayout>
struct BatchTensors {
  using Vector = IndexVector<std::byte, kLayout>;
  using ConstVector = IndexVector<const std::byte, kLayout>;
  using Rows = IndexRows<std::byte, kLayout>;
  using ConstRows = IndexRows<const std::byte, kLayout>;
};
/// Of a batch whose requests one window holds, and whose sums fit 32 bits.
struct GeneralTensors : BatchTensors<IndexLayout::kStrided> {
  using Number = int64_t;
  using Place = int32_t;  // of a token, page, table entry or request
  static constexpr Number kMaxTokens = kHuge;
  static constexpr int kThreads = kFewSeqs, kMinBlocksPerSm = 0;  // 0: any
  static constexpr bool kHasWindows = false;
};
struct ContiguousTensors : BatchTensors<IndexLayout::kI32> {
  using Number = int32_t;
  using Place = int32_t;
  static constexpr Number kMaxTokens = 1 << 28;  // of a request: sums of some stay within 32 bits
  static constexpr int kThreads = kFewSeqs, kMinBlocksPerSm = 0;  // 0: any
  static constexpr bool kHasWindows = false;
};
/// Of any batch.
struct LargeBatchTensors : GeneralTensors {
  using Place = int64_t;
  static constexpr int kThreads = kSeqsPerWindow, kMinBlocksPerSm = kThreadsPerSm / kThreads;
  static constexpr bool kHasWindows = true;
};

/// A list or table as a kernel takes it; one without elements is absent.
template <class Vector, class Byte>
[[nodiscard]] Vector packed(const BasicIndexList<Byte>& t) {
  return {t ? t.data : nullptr, t.step_bytes(), t.is_int64};
}
template <class Rows, class Byte>
[[nodiscard]] Rows packed(const BasicIndexTable<Byte>& t) {
  return {t ? t.data : nullptr, t.row_step_bytes(), t.step_bytes(), t.is_int64};
}

/// In the order in which a kernel needs them.
template <class T>
struct BatchParams {
  using Tensors = T;
  using Number = typename T::Number;
  using Place = typename T::Place;

  typename T::ConstVector cache_lengths, accepted_lengths, input_lengths, num_active, adapter_slots;
  typename T::ConstVector seq_page_indptr, next_indptr, prompt_lengths;
  Number num_seqs, num_tokens, max_pages, table_width, num_slots;
  Number page_size, tokens_per_seq, accepted_extra;
  Number given_pages;  // in `seq_pages`, or in a row of seq_page_table
  int page_shift;      // page_size is 1 << page_shift; negative where it is no power of two
  bool has_given_pages, has_loose_ids, has_segments;
  struct {
    Number tokens_per_item, token_items, adapter_items, page_items, table_items, slot_items;
  } items;

  typename T::ConstVector seq_pages, next_input_ids;
  typename T::ConstRows seq_page_table;
  typename T::Rows all_input_ids;
  Number num_next_ids;  // in next_input_ids
  Number max_length;    // of a row of all_input_ids
  Number page_end;      // pages from here on have no place that fits an integer
  Number pad_page, pad_token, num_segments;
  typename T::Vector positions, kv_slots, token_to_seq, input_ids, slot_ids, adapter_rows;
  typename T::Vector q_indptr, start_lengths, kv_lengths, page_indptr, last_page_len, pages;
  typename T::Vector seg_starts, seg_ends, seg_slots, adapter_indptr, overflow;
  typename T::Rows page_table;
};

template <class T>
[[nodiscard]] BatchParams<T> pack(const PrepareBatchParams& p, const PrepareBatchItems& items) {
  using Number = typename T::Number;
  const auto fitted = [](int64_t x) {
    return static_cast<Number>(std::clamp<int64_t>(x, std::numeric_limits<Number>::min(),
                                                   std::numeric_limits<Number>::max()));
  };
  const auto page_size = static_cast<uint64_t>(p.page_size);
  BatchParams<T> q{};
  const auto set = [](auto& to, const auto& tensor) {
    to = packed<std::remove_cvref_t<decltype(to)>>(tensor);
  };
  set(q.cache_lengths, p.cache_lengths);
  set(q.accepted_lengths, p.accepted_lengths);
  set(q.input_lengths, p.input_lengths);
  set(q.num_active, p.num_active);
  set(q.adapter_slots, p.adapter_slots);
  set(q.seq_page_indptr, p.seq_page_indptr);
  set(q.next_indptr, p.next_indptr);
  set(q.prompt_lengths, p.prompt_lengths);
  q.num_seqs = fitted(p.num_seqs);
  q.num_tokens = fitted(p.num_tokens);
  q.max_pages = fitted(p.max_pages);
  q.table_width = fitted(p.table_width);
  q.num_slots = fitted(p.num_slots);
  q.page_size = fitted(p.page_size);
  q.tokens_per_seq = std::min(fitted(p.tokens_per_seq), T::kMaxTokens);
  q.accepted_extra = fitted(p.accepted_extra);
  q.given_pages = fitted(p.seq_page_indptr ? p.seq_pages.size : p.seq_page_table.width);
  q.page_shift = std::has_single_bit(page_size) ? std::countr_zero(page_size) : -1;
  q.has_given_pages = p.pages_are_given;
  q.has_loose_ids = has_loose_ids(p);
  q.has_segments = p.num_segments != kHuge;
  q.items = {fitted(items.tokens_per_item), fitted(items.token_items), fitted(items.adapter_items),
             fitted(items.page_items),      fitted(items.table_items), fitted(items.slot_items)};
  set(q.seq_pages, p.seq_pages);
  set(q.next_input_ids, p.next_input_ids);
  set(q.seq_page_table, p.seq_page_table);
  set(q.all_input_ids, p.all_input_ids);
  q.num_next_ids = fitted(p.next_input_ids.size);
  q.max_length = fitted(p.all_input_ids.width);
  q.page_end = fitted(p.page_size > 0 ? kHuge / p.page_size : 0);
  q.pad_page = static_cast<Number>(p.pad_page);
  q.pad_token = static_cast<Number>(p.pad_token);
  q.num_segments = fitted(p.num_segments);
  set(q.positions, p.positions);
  set(q.kv_slots, p.kv_slots);
  set(q.token_to_seq, p.token_to_seq);
  set(q.input_ids, p.input_ids);
  set(q.slot_ids, p.slot_ids);
  set(q.adapter_rows, p.adapter_rows);
  set(q.q_indptr, p.q_indptr);
  set(q.start_lengths, p.start_lengths);
  set(q.kv_lengths, p.kv_lengths);
  set(q.page_indptr, p.page_indptr);
  set(q.last_page_len, p.last_page_len);
  set(q.pages, p.pages);
  set(q.seg_starts, p.seg_starts);
  set(q.seg_ends, p.seg_ends);
  set(q.seg_slots, p.seg_slots);
  set(q.adapter_indptr, p.adapter_indptr);
  set(q.overflow, p.overflow);
  set(q.page_table, p.page_table);
  return q;
}

/// Whether a small batch can be packed with ContiguousTensors.
[[nodiscard]] inline bool is_contiguous(const PrepareBatchParams& p) {
  const auto all = [](const auto&... tensors) {
    return ((is_i32(tensors) && is_contiguous(tensors)) && ...);
  };
  return all(p.q_indptr, p.start_lengths, p.kv_lengths, p.page_indptr, p.last_page_len, p.pages,
             p.page_table, p.positions, p.kv_slots, p.token_to_seq, p.input_ids, p.slot_ids) &&
         all(p.seg_starts, p.seg_ends, p.seg_slots, p.adapter_rows, p.adapter_indptr,
             p.all_input_ids, p.overflow) &&
         all(p.cache_lengths, p.accepted_lengths, p.input_lengths, p.num_active, p.seq_page_table,
             p.seq_pages, p.seq_page_indptr, p.adapter_slots, p.next_input_ids, p.next_indptr,
             p.prompt_lengths) &&
         p.page_size <= ContiguousTensors::kMaxTokens &&
         std::abs(p.accepted_extra) <= ContiguousTensors::kMaxTokens;
}

/// The kernels of prepare_batch, that with the fewest instructions first.
enum class PrepareBatchKernel { kSmallContiguous, kSmallGeneral, kGeneral };

inline std::ostream& operator<<(std::ostream& out, PrepareBatchKernel kernel) {
  constexpr const char* kNames[] = {"small_contiguous", "small_general", "general"};
  return out << kNames[static_cast<int>(kernel)];
}
[[nodiscard]] inline PrepareBatchKernel select_prepare_batch_kernel(const PrepareBatchParams& p) {
  if (!is_small_batch(p)) return PrepareBatchKernel::kGeneral;
  return is_contiguous(p) ? PrepareBatchKernel::kSmallContiguous
                          : PrepareBatchKernel::kSmallGeneral;
}

}  // namespace heddle::cuda::metadata
