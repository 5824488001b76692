#pragma once

#include "heddle/core/context.h"
#include "heddle/ops/metadata.h"

#include "ops/metadata/indices.h"

namespace heddle {

/// A checked call of prepare_batch. What is absent is empty; what bounds nothing is kHuge.
struct PrepareBatchParams {
  IndexList q_indptr, start_lengths, kv_lengths, page_indptr, last_page_len, pages;
  IndexTable page_table;
  IndexList positions, kv_slots, token_to_seq, input_ids, slot_ids;
  IndexList seg_starts, seg_ends, seg_slots, adapter_rows, adapter_indptr;
  IndexTable all_input_ids;
  IndexList overflow;

  ConstIndexList cache_lengths, accepted_lengths, input_lengths, num_active;
  ConstIndexTable seq_page_table;
  ConstIndexList seq_pages, seq_page_indptr;
  ConstIndexList adapter_slots, next_input_ids, next_indptr, prompt_lengths;
  bool pages_are_given = false;
  bool has_token_outputs = false;

  int64_t num_seqs = 0;
  int64_t num_tokens = kHuge;    // extent of the token outputs
  int64_t max_pages = kHuge;     // extent of `pages`
  int64_t table_width = kHuge;   // of the output page_table
  int64_t num_segments = kHuge;  // extent of the segment outputs
  int64_t num_slots = kHuge;
  int64_t page_size = 0, tokens_per_seq = 1, accepted_extra = 0, pad_page = -1, pad_token = 0;
};
static_assert(std::is_trivially_copyable_v<PrepareBatchParams>);

/// The pages that the caller has given to a request, in use or not.
inline ConstIndexList pages_of(const PrepareBatchParams& p, int64_t seq) {
  if (p.seq_page_table) return p.seq_page_table[seq];
  if (!p.seq_pages) return {};
  const int64_t begin = bounded(p.seq_page_indptr[seq]);
  const int64_t end = std::min(bounded(p.seq_page_indptr[seq + 1]), p.seq_pages.size);
  if (begin < 0 || begin >= end) return {};
  return {p.seq_pages.data + begin * p.seq_pages.step_bytes(), end - begin, p.seq_pages.stride,
          p.seq_pages.is_int64};
}

/// The number of requests that are no padding.
inline int64_t active_seqs(const PrepareBatchParams& p) {
  return p.num_active ? std::clamp<int64_t>(p.num_active[0], 0, p.num_seqs) : p.num_seqs;
}

/// What becomes of one request.
struct SeqPlan {
  int64_t first_token = 0, num_tokens = 0;
  int64_t first_page = 0, num_pages = 0;
  int64_t start = 0, kv_length = 0;
  int64_t slot = -1;                          // of its adapter
  int64_t asked_tokens = 0, asked_pages = 0;  // before cutting
  int32_t overflow = 0;                       // PrepareBatchOverflow: why it was cut
};

/// Plans the requests one after the other, as each begins where the one before ends.
class SeqPlanner {
 public:
  explicit SeqPlanner(const PrepareBatchParams& p) : p_(p), num_active_(active_seqs(p)) {}
  /// The plan of the next request; an empty one for padding.
  SeqPlan next();
  /// next() without the pages, for who needs tokens and adapters alone.
  SeqPlan next_without_pages();

 private:
  void add_pages(int64_t seq, SeqPlan& plan);

  const PrepareBatchParams& p_;
  int64_t num_active_;
  int64_t seq_ = 0, tokens_ = 0, pages_ = 0;
};

namespace cpu::metadata {

void prepare_batch(const ExecContext& ctx, const PrepareBatchParams& p);

}  // namespace cpu::metadata

namespace cuda::metadata {

void prepare_batch(const ExecContext& ctx, const PrepareBatchParams& p);

}  // namespace cuda::metadata
}  // namespace heddle
