#pragma once

// Which keys a query sees: a range by causality and window, and bits where the sequence has a tree
// mask.

#include <cstdint>

#include "core/math.h"
#include "ops/attention/device/params.h"
#include "ops/attention/paged/paged_kv_cuda.h"

namespace heddle::cuda::attention {

/// The query rows of a sequence.
struct SequenceRows {
  int64_t first;  // row of q
  int q_len;
};
__device__ inline SequenceRows sequence_rows(const AttentionCallParams& p, int64_t seq) {
  if (!p.q_indptr.is_given()) return {seq, 1};
  const int64_t begin = p.q_indptr[seq];
  return {begin, static_cast<int>(p.q_indptr[seq + 1] - begin)};
}

/// Tree mask of a sequence: bit j % 32 of word j / 32 of row r says whether query r sees new token
/// j.
struct RowTreeMask {
  const uint32_t* words = nullptr;  // nullptr: none, causality decides
  int row_words = 0;

  /// 32 bits of row r from new token `first` on, in bit 0. It may be negative or past the last:
  /// those bits are 0.
  [[nodiscard]] __device__ uint32_t bits(int r, int first) const {
    const uint32_t* row = words + int64_t{r} * row_words;
    const int word = first >> 5, shift = first & 31;
    const uint32_t low = word >= 0 && word < row_words ? row[word] : 0;
    const uint32_t high = word >= -1 && word + 1 < row_words ? row[word + 1] : 0;
    return __funnelshift_r(low, high, shift);
  }
};
/// is_wrong becomes true where the starts give the sequence no mask of its size.
__device__ inline RowTreeMask tree_mask(const AttentionCallParams& p, int64_t seq, int q_len,
                                        bool& is_wrong) {
  if (p.tree_mask == nullptr) return {};
  const int64_t begin = p.tree_mask_indptr[seq], end = p.tree_mask_indptr[seq + 1];
  if (begin == end) return {};
  const int row_words = ceil_div(q_len, 32);
  if (begin < 0 || end > p.num_mask_words || end - begin != int64_t{q_len} * row_words) {
    const int64_t wrong = begin < 0 ? begin : end;
    report_fault(p.kv.faults, "batch_prefill", "tree_mask_indptr", seq, wrong);
    is_wrong = true;
    return {};
  }
  return {p.tree_mask + begin, row_words};
}

/// The keys [begin, end) of [0, kv_len) that a query at `position` may see, with begin <= end. Of a
/// sequence with a tree mask it sees those of them that lie before kv_len - q_len, and of the
/// others those whose bits are set: bits(r, key - (kv_len - q_len)).
struct KeyRange {
  int begin, end;
};
__device__ inline KeyRange visible_keys(const AttentionCallParams& p, int position, int kv_len,
                                        bool has_tree) {
  const int end = p.causal && !has_tree ? max(min(position + 1, kv_len), 0) : kv_len;
  const int begin = p.window_left >= 0 ? max(position - p.window_left, 0) : 0;
  return {min(begin, end), end};
}

}  // namespace heddle::cuda::attention
