#pragma once

// Where a row of new tokens goes: the sequence it belongs to, its position there, and the page.

#include "core/math.h"
#include "ops/attention/kv_append/kv_append_cuda_params.h"
#include "ops/attention/paged/paged_kv_cuda.h"

namespace heddle::cuda::attention {

/// The last sequence of [0, num_seqs) that begins at or before row t; -1 where the first begins
/// behind it. By all lanes of a warp for the same t, 32 candidates a load.
__device__ inline int find_sequence(const ConstIndexVector& seq_indptr, int num_seqs, int64_t t) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int low = 0, count = num_seqs;
  do {
    const int step = ceil_div(count, 32), candidate = lane * step;
    const bool is_before = candidate < count && seq_indptr[low + candidate] <= t;
    const int num_before = __popc(__ballot_sync(~0u, is_before));
    if (num_before == 0) return -1;
    const int skipped = (num_before - 1) * step;
    low += skipped;
    count = min(step, count - skipped);
  } while (count > 1);
  return low;
}

struct NewToken {
  int position = -1;         // -1: the row is not stored
  std::byte* key = nullptr;  // of head 0
};

/// By all lanes of a warp for the same row t of [0, num_tokens). Where there are as many rows as
/// sequences, each may well have one: what sequence t says is asked for beside the question whether
/// it has the row.
__device__ inline NewToken find_token(const KvAppendParams& p, int64_t t) {
  const bool is_indexed = p.seq_indptr.is_given();
  SequencePages pages;
  int64_t behind = 0;  // rows from t to the end of its sequence
  bool is_found = false;
  if (!is_indexed || p.num_tokens == p.num_seqs) {
    pages = sequence_pages(p.kv, t);
    const int64_t begin = is_indexed ? p.seq_indptr[t] : t;
    const int64_t end = is_indexed ? p.seq_indptr[t + 1] : t + 1;
    is_found = begin <= t && t < end;
    behind = end - t;
  }
  if (!is_found) {
    const int seq = find_sequence(p.seq_indptr, p.num_seqs, t);
    if (seq < 0) return {};
    pages = sequence_pages(p.kv, seq);
    behind = p.seq_indptr[seq + 1] - t;
  }
  const int64_t position = pages.kv_len - behind;
  if (behind <= 0 || position < 0) return {};
  const PageSlot at = page_slot(p.kv, static_cast<int>(position));
  std::byte* page = page_address(p.kv, pages.first_page + at.page);
  return {static_cast<int>(position), page + row_offset(p.kv, 0, at.slot)};
}

}  // namespace heddle::cuda::attention
