#pragma once

#include "cuda/index_cuda.h"
#include "cuda/warp.h"

#include "ops/verify/verify_kernels.h"

namespace heddle::cuda::verify {

/// DraftBatch.
struct DeviceDraftBatch {
  ConstIndexVector indptr, tokens;
  int64_t num_seqs, num_drafts;

  explicit DeviceDraftBatch(const DraftBatch& b)
      : indptr(on_device(b.indptr)),
        tokens(on_device(b.tokens)),
        num_seqs(b.num_seqs),
        num_drafts(b.num_drafts) {}

  [[nodiscard]] __device__ DraftSpan span(int64_t seq) const {
    const int64_t first = indptr[seq], last = indptr[seq + 1];
    const int64_t begin = clamp(first, 0), end = clamp(last, begin);
    return {begin, end - begin, begin + seq};
  }

 private:
  [[nodiscard]] __device__ int64_t clamp(int64_t start, int64_t low) const {
    return start < low ? low : start > num_drafts ? num_drafts : start;
  }
};

/// TreeMask.
struct DeviceTreeMask {
  const std::byte* words;
  int64_t row_stride, num_words, word_bits;
  bool is_chain;

  explicit DeviceTreeMask(const TreeMask& m)
      : words(m.words()),
        row_stride(m.row_stride()),
        num_words(m.num_words()),
        word_bits(m.word_bits()),
        is_chain(m.is_chain()) {}

  [[nodiscard]] __device__ uint64_t word(int64_t draft, int64_t w) const {
    const int64_t at = draft * row_stride + w;
    return word_bits == 64 ? reinterpret_cast<const uint64_t*>(words)[at]
                           : reinterpret_cast<const uint32_t*>(words)[at];
  }
  [[nodiscard]] __device__ int64_t parent(const DraftSpan& span, int64_t i) const {
    if (is_chain) return i - 1;
    const int shift = word_bits == 64 ? 6 : 5;
    int64_t w = i >> shift;
    uint64_t below = (uint64_t{1} << (i & (word_bits - 1))) - 1;  // in word w, the nodes before i
    if (w >= num_words) {
      w = num_words - 1;
      below = ~uint64_t{0};
    }
    for (; w >= 0; --w, below = ~uint64_t{0}) {
      const uint64_t bits = word(span.begin + i, w) & below;
      if (bits != 0) return (w << shift) + 63 - __clzll(static_cast<long long>(bits));
    }
    return -1;
  }
  /// Each warp looks by itself, 32 nodes at once; all lanes call it with the same arguments.
  [[nodiscard]] __device__ int64_t next_child(const DraftSpan& span, int64_t node,
                                              int64_t after) const {
    if (is_chain) return after == node && node + 1 < span.num_drafts ? node + 1 : -1;
    const int64_t lane = threadIdx.x % 32;
    for (int64_t first = after + 1; first < span.num_drafts; first += 32) {
      const int64_t i = first + lane;
      const bool is_child = i < span.num_drafts && parent(span, i) == node;
      const unsigned lanes = __ballot_sync(kAllLanes, is_child);
      if (lanes != 0) return first + __ffs(static_cast<int>(lanes)) - 1;
    }
    return -1;
  }
};

/// VerifyOutputs.
struct DeviceVerifyOutputs {
  MutableIndexRows tokens;
  MutableIndexVector num_accepted;
  MutableIndexRows nodes;
  int64_t max_accepted;

  explicit DeviceVerifyOutputs(const VerifyOutputs& o)
      : tokens(on_device(o.tokens)),
        num_accepted(on_device(o.num_accepted)),
        nodes(on_device(o.nodes)),
        max_accepted(o.max_accepted) {}

  __device__ void accept(int64_t seq, int64_t place, int64_t node, int64_t token) const {
    tokens.row(seq).set(place, token);
    nodes.row(seq).set(place, node);
  }
  __device__ void finish(int64_t seq, int64_t accepted, int64_t next_token) const {
    num_accepted.set(seq, accepted);
    const MutableIndexVector of_tokens = tokens.row(seq), of_nodes = nodes.row(seq);
    of_tokens.set(accepted, next_token);
    for (int64_t k = accepted; k < max_accepted; ++k) {
      of_tokens.set(k + 1, -1);
      of_nodes.set(k, -1);
    }
  }
};

}  // namespace heddle::cuda::verify
