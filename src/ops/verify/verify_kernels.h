#pragma once

#include <bit>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

#include "cpu/index_array.h"

namespace heddle {

/// One request's part of a batch of drafts.
struct DraftSpan {
  int64_t begin;       // its first draft among all
  int64_t num_drafts;  // they are counted from 0 here: draft i is begin + i
  /// Of the target's results: the row after the last token; that after draft i is i + 1 further.
  int64_t target_row;
};

struct DraftBatch {
  cpu::IndexArray indptr;  // [num_seqs + 1]
  cpu::IndexArray tokens;  // [num_drafts]
  int64_t num_seqs, num_drafts;

  /// Starts out of order or range give short spans, never reads out of bounds.
  [[nodiscard]] constexpr DraftSpan span(int64_t seq) const {
    const int64_t first = indptr[seq], last = indptr[seq + 1];
    const int64_t begin = clamp(first, 0), end = clamp(last, begin);
    return {begin, end - begin, begin + seq};
  }

 private:
  [[nodiscard]] constexpr int64_t clamp(int64_t start, int64_t low) const {
    return start < low ? low : start > num_drafts ? num_drafts : start;
  }
};

/// The ancestors of drafts as bits (heddle/ops/verify.h). Made without a tensor, it is a chain:
/// each draft follows the one before.
class TreeMask {
 public:
  TreeMask() = default;
  explicit TreeMask(const ConstTensorView& mask)
      : words_(mask.raw()),
        row_stride_(mask.stride(0)),
        num_words_(mask.size(1)),
        word_bits_(mask.dtype() == DType::kInt64 ? 64 : 32),
        is_chain_(false) {}

  [[nodiscard]] constexpr bool is_chain() const { return is_chain_; }
  [[nodiscard]] int64_t num_words() const { return num_words_; }
  [[nodiscard]] int64_t word_bits() const { return word_bits_; }

  /// Word w of a draft's row; `draft` counts over the batch.
  [[nodiscard]] constexpr uint64_t word(int64_t draft, int64_t w) const {
    const int64_t at = draft * row_stride_ + w;
    return word_bits_ == 64 ? load<uint64_t>(at) : load<uint32_t>(at);
  }

  /// The parent of node i of a request, always below i; -1: the root.
  [[nodiscard]] constexpr int64_t parent(const DraftSpan& span, int64_t i) const {
    if (is_chain_) return i - 1;
    const int shift = word_bits_ == 64 ? 6 : 5;
    int64_t w = i >> shift;
    uint64_t below = (uint64_t{1} << (i & (word_bits_ - 1))) - 1;  // in word w, the nodes before i
    if (w >= num_words_) {
      w = num_words_ - 1;
      below = ~uint64_t{0};
    }
    for (; w >= 0; --w, below = ~uint64_t{0}) {
      const uint64_t bits = word(span.begin + i, w) & below;
      if (bits != 0) return (w << shift) + 63 - leading_zeros(bits);
    }
    return -1;
  }

  /// The lowest child of `node` above `after`, which is no less than `node`; -1: there is none.
  [[nodiscard]] constexpr int64_t next_child(const DraftSpan& span, int64_t node,
                                             int64_t after) const {
    if (is_chain_) return after == node && node + 1 < span.num_drafts ? node + 1 : -1;
    for (int64_t i = after + 1; i < span.num_drafts; ++i) {
      if (parent(span, i) == node) return i;
    }
    return -1;
  }

 private:
  [[nodiscard]] static constexpr int leading_zeros(uint64_t bits) {
#ifdef __CUDA_ARCH__  // nvcc 13.0 makes no code of std::countl_zero, and the result is wrong
    return __clzll(static_cast<long long>(bits));
#else
    return std::countl_zero(bits);
#endif
  }
  template <class Word>
  [[nodiscard]] constexpr uint64_t load(int64_t at) const {
    return reinterpret_cast<const Word*>(words_)[at];
  }

  const std::byte* words_ = nullptr;  // [num_drafts, num_words]
  int64_t row_stride_ = 0, num_words_ = 0, word_bits_ = 64;
  bool is_chain_ = true;
};

struct VerifyOutputs {
  cpu::MutableIndexMatrix tokens;       // [num_seqs, max_accepted + 1]
  cpu::MutableIndexArray num_accepted;  // [num_seqs]
  cpu::MutableIndexMatrix nodes;        // [num_seqs, max_accepted], or absent
  int64_t max_accepted;

  /// Draft `node` is the one accepted at `place`, from 0 on.
  constexpr void accept(int64_t seq, int64_t place, int64_t node, int64_t token) const {
    tokens.row(seq).set(place, token);
    nodes.row(seq).set(place, node);
  }
  /// Writes what follows the accepted drafts.
  constexpr void finish(int64_t seq, int64_t accepted, int64_t next_token) const {
    num_accepted.set(seq, accepted);
    const cpu::MutableIndexArray of_tokens = tokens.row(seq), of_nodes = nodes.row(seq);
    of_tokens.set(accepted, next_token);
    for (int64_t k = accepted; k < max_accepted; ++k) {
      of_tokens.set(k + 1, -1);
      of_nodes.set(k, -1);
    }
  }
};

struct GreedyParams {
  DraftBatch batch;
  TreeMask tree;
  cpu::IndexArray target_tokens;  // [num_drafts + num_seqs]
  VerifyOutputs outputs;

  /// Whether draft i, which follows node `parent`, is what the target chose there.
  [[nodiscard]] constexpr bool is_confirmed(const DraftSpan& span, int64_t i,
                                            int64_t parent) const {
    const int64_t token = batch.tokens[span.begin + i];
    const int64_t chosen = target_tokens[span.target_row + 1 + parent];
    return token >= 0 && token == chosen;
  }
  /// Nodes from the root to `node` if the target confirms them all, else 0. Each node is judged
  /// alone, so that many threads can share a tree.
  [[nodiscard]] constexpr int64_t confirmed_depth(const DraftSpan& span, int64_t node) const {
    int64_t depth = 0;
    while (node >= 0) {
      const int64_t parent = tree.parent(span, node);
      if (!is_confirmed(span, node, parent)) return 0;
      ++depth;
      node = parent;
    }
    return depth;
  }
};

/// Rows of probabilities; data is nullptr where there are none.
struct ProbabilityRows {
  const float* data;  // [num_rows, vocab_size]
  int64_t row_stride;

  [[nodiscard]] constexpr const float* row(int64_t i) const { return data + i * row_stride; }
};

struct StochasticParams {
  DraftBatch batch;
  TreeMask tree;
  ProbabilityRows draft_probs;   // [num_drafts, vocab_size], or none
  ProbabilityRows target_probs;  // [num_drafts + num_seqs, vocab_size]
  int64_t vocab_size;
  cpu::IndexArray seed, step;  // [num_seqs]
  VerifyOutputs outputs;
};

struct TreeMoveParams {
  cpu::MutableIndexMatrix from, to;  // [num_seqs, max_depth]
  cpu::IndexMatrix nodes;            // [num_seqs, max_depth]
  cpu::IndexArray accepted;          // [num_seqs]
  cpu::IndexArray roots;             // [num_seqs]
  int64_t num_seqs, max_depth;

  /// from[seq, k] = roots[seq] + 1 + nodes[seq, k], to[seq, k] = roots[seq] + 1 + k below
  /// accepted[seq], -1 from there on.
  constexpr void move(int64_t seq, int64_t k) const {
    const int64_t num_moves = accepted[seq], first = roots[seq] + 1, node = nodes.row(seq)[k];
    from.row(seq).set(k, k < num_moves ? first + node : -1);
    to.row(seq).set(k, k < num_moves ? first + k : -1);
  }
};

namespace cuda::verify {
void verify_greedy(const GreedyParams& params, cudaStream_t stream);
void verify_stochastic(const StochasticParams& params, cudaStream_t stream);
void tree_kv_moves(const TreeMoveParams& params, cudaStream_t stream);
}  // namespace cuda::verify

}  // namespace heddle
