#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/metadata/prepare_batch_kernels.h"

// A call of prepare_batch as its kernel takes it: half the size of PrepareBatchParams, since every launch carries it along.

namespace heddle::cuda {

/// Indices without their extent. `step` is the stride in bytes, a multiple of 4; its lowest bit says that elements are i64.
template <class Byte>
struct BasicPacked {
  Byte* data = nullptr;
  int64_t step = 0;

  BasicPacked() = default;
  explicit BasicPacked(const BasicIndices<Byte>& t)
      : data(t.size > 0 ? t.data : nullptr), step(t.stride * (t.wide ? 8 : 4) + (t.wide ? 1 : 0)) {}
};
using Packed = BasicPacked<std::byte>;
using ConstPacked = BasicPacked<const std::byte>;

/// The same for rows; `row_step` in bytes.
template <class Byte>
struct BasicPackedRows {
  BasicPacked<Byte> row;  // row 0
  int64_t row_step = 0;

  BasicPackedRows() = default;
  explicit BasicPackedRows(const BasicIndexRows<Byte>& t)
      : row_step(t.row_stride * (t.wide ? 8 : 4)) {
    if (t) row = BasicPacked<Byte>(t[0]);
  }
};

/// How the work of one launch is cut into items, which go round the blocks behind the first one, of a small batch their warps.
struct PrepareBatchItems {
  int64_t tokens_per_item = 0;
  int64_t token_items = 0, page_items = 0, table_items = 0;
  int64_t slot_items = 0;  // of a small batch
  int threads = 0;         // of a block, and requests that are planned at a time
  unsigned blocks = 0;
  bool is_small = false;  // prepare_small_batch_cuda.cu takes it
};

inline constexpr int kFewSeqs = 256, kSeqsPerWindow = 512;
inline constexpr int64_t kPagesPerItem = 512;
/// A batch of few tokens takes small items: the requests of an item are looked up in all others by the lanes of one block.
inline constexpr int64_t kFewTokens = 32, kManyTokens = 256;
inline constexpr int kLanesPerSum = 8;

inline constexpr int64_t kSmallPagesPerItem = 128;
inline constexpr int64_t kMostLanes = 32;

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

[[nodiscard]] inline PrepareBatchItems select_small_batch_items(const PrepareBatchParams& p,
                                                                int num_sms) {
  constexpr int64_t kWarps = kFewSeqs / 32;
  const auto items = [](int64_t n, int64_t per_item) { return (n + per_item - 1) / per_item; };
  PrepareBatchItems s;
  s.is_small = true;
  s.threads = kFewSeqs;
  s.tokens_per_item = 1;  // two blocks' warps for each multiprocessor
  while (s.tokens_per_item < kMostLanes && p.num_tokens > s.tokens_per_item * 2 * kWarps * num_sms)
    s.tokens_per_item *= 2;
  s.token_items = items(p.num_tokens, s.tokens_per_item);
  s.page_items = items(p.pages.size, kSmallPagesPerItem);
  s.table_items = items(p.page_table.rows * p.page_table.width, kSmallPagesPerItem);
  s.slot_items = p.adapter_indptr.size;
  const int64_t all = s.token_items + s.page_items + s.table_items + s.slot_items;
  s.blocks = 1 + static_cast<unsigned>(std::min(items(all, kWarps), int64_t{4} * num_sms));
  return s;
}

[[nodiscard]] inline PrepareBatchItems select_prepare_batch_items(const PrepareBatchParams& p,
                                                                  int num_sms) {
  if (is_small_batch(p)) return select_small_batch_items(p, num_sms);
  const auto items = [](int64_t n, int64_t per_item) { return (n + per_item - 1) / per_item; };
  PrepareBatchItems s;
  s.threads = p.num_seqs <= kFewSeqs ? kFewSeqs : kSeqsPerWindow;
  s.tokens_per_item = p.num_tokens <= 2 * kFewTokens * num_sms ? kFewTokens : kManyTokens;
  if (p.has_token_outputs) s.token_items = items(p.num_tokens, s.tokens_per_item);
  s.page_items = items(p.pages.size, kPagesPerItem);
  s.table_items = items(p.page_table.rows * p.page_table.width, kPagesPerItem);
  const int64_t sums = items(p.adapter_indptr.size, s.threads / kLanesPerSum);
  const bool has_loose_ids = !p.has_token_outputs && p.all_input_ids && p.next_input_ids;
  const int64_t loose = has_loose_ids ? items(p.num_seqs, s.threads / 32) : 0;
  const int64_t all = s.token_items + s.page_items + s.table_items + sums + loose;
  const int64_t most = int64_t{num_sms} * (1024 / s.threads);
  s.blocks = 1 + static_cast<unsigned>(std::min(all, most));
  return s;
}

struct PrepareBatchCudaParams {
  Packed q_indptr, start_lengths, kv_lengths, page_indptr, last_page_len, pages;
  Packed positions, kv_slots, token_to_seq, input_ids, slot_ids;
  Packed seg_starts, seg_ends, seg_slots, adapter_rows, adapter_indptr, overflow;
  BasicPackedRows<std::byte> page_table, all_input_ids;
  ConstPacked cache_lengths, accepted_lengths, input_lengths, num_active;
  ConstPacked seq_pages, seq_page_indptr, adapter_slots, next_input_ids, next_indptr,
      prompt_lengths;
  BasicPackedRows<const std::byte> seq_page_table;

  int64_t num_seqs, num_tokens, max_pages, table_width, num_segments, num_slots;
  int64_t page_size, tokens_per_seq, accepted_extra, pad_page, pad_token;
  int64_t given_pages;   // in `seq_pages`, or in a row of seq_page_table
  int64_t num_next_ids;  // in next_input_ids
  int64_t max_length;    // of a row of all_input_ids
  int64_t page_end;      // pages from here on have no place that fits an integer
  int page_shift;        // page_size is 1 << page_shift; negative where it is no power of two
  bool has_given_pages, has_loose_ids;
  PrepareBatchItems items;
};

[[nodiscard]] PrepareBatchCudaParams pack(const PrepareBatchParams& p, int num_sms);
void prepare_small_batch(const ExecContext& ctx, const PrepareBatchCudaParams& p);

}  // namespace heddle::cuda
