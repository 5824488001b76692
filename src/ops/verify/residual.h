#pragma once

#include <cstdint>

#include "core/math.h"

namespace heddle {

/// Drafts that may be rejected at one place of a sequence: children of a node that are tried.
inline constexpr int kMaxTried = 64;

/// A probability, or 0 for what is none (NaN, negative).
[[nodiscard]] inline double probability(float x) { return x > 0.0f ? double{x} : 0.0; }

/// What is left of the target's row p after drafts were rejected, unnormalised: w_0 = p and, for
/// each rejected draft k in turn, w_k+1 = max(w_k - mass_k q_k, 0), where mass_k is the sum of w_k
/// (1 for p). Never stored: weights are computed from the rows whenever they are needed, in f64,
/// product and difference rounded one after the other.
struct Residual {
  const float* p;      // [vocab_size]
  int64_t vocab_size;  // >= 1
  bool one_hot;        // the q are 1 at the rejected token, 0 elsewhere: w_k+1 is w_k without it
  int num_rejected;
  double masses[kMaxTried];
  const float* q[kMaxTried];  // [vocab_size] each, unless one_hot
  int64_t tokens[kMaxTried];  // if one_hot
};

[[nodiscard]] double weight_of(const Residual& residual, int64_t token);

/// Sums of weights over chunks of the vocabulary: chunk c is [c * chunk_size, (c + 1) *
/// chunk_size), cut at the end.
struct ChunkSums {
  static constexpr int64_t kMaxChunks = 512, kUnit = 1024;
  int64_t chunk_size, num_chunks;
  double sums[kMaxChunks];
  double total;  // of the sums, in ascending order
};

/// 1024 tokens to a chunk while 512 chunks suffice, else the next multiple of 1024 with which they
/// do.
[[nodiscard]] constexpr int64_t chunk_size_of(int64_t vocab_size) {
  constexpr int64_t kSpan = ChunkSums::kMaxChunks * ChunkSums::kUnit;
  if (vocab_size <= kSpan) return ChunkSums::kUnit;
  return ceil_div(vocab_size, kSpan) * ChunkSums::kUnit;
}
static_assert(chunk_size_of(1) == 1024 && chunk_size_of(524288) == 1024);
static_assert(chunk_size_of(524289) == 2048 && chunk_size_of(2147483647) == 4194304);

/// The first token, ids ascending, whose running sum of weights exceeds u times their total; where
/// rounding keeps the sum below that, the last token of positive weight. The total is positive.
[[nodiscard]] int64_t draw_from(const Residual& residual, const ChunkSums& sums, double u);

/// Fills `sums`. A chunk is summed in 16 lanes, element i of it in lane i % 16, ascending; the
/// lanes are added up as a tree: lanes i and i + 8, then i + 4, i + 2, i + 1.
void sum_weights(const Residual& residual, ChunkSums& sums);

/// The same where `sums` are those of before the last rejection, one-hot: one chunk alone has
/// changed.
void sum_weights_again(const Residual& residual, ChunkSums& sums);

namespace cpu::verify {
/// The sums of chunks [first, end), for the chunk_size that is set.
void sum_chunks(const Residual& residual, ChunkSums& sums, int64_t first, int64_t end);
}  // namespace cpu::verify

}  // namespace heddle
