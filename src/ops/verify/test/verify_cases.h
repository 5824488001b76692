#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "heddle/core/tensor_view.h"

namespace heddle {

using Generator = std::mt19937_64;

inline int64_t random_below(Generator& rng, int64_t n) {
  return std::uniform_int_distribution<int64_t>(0, n - 1)(rng);
}

/// A batch of requests with drafts, and all that the verifications read of them. Requests are added
/// one by one.
struct VerifyBatch {
  int64_t vocab_size = 1;
  std::vector<int64_t> indptr{0}, tokens, parents;  // parents count within the request, -1: root
  std::vector<float> draft_probs, target_probs;     // [N, vocab_size], [N + B, vocab_size]
  std::vector<int64_t> target_tokens;               // [N + B]
  std::vector<int64_t> seed, step;                  // [B]

  [[nodiscard]] int64_t num_seqs() const { return static_cast<int64_t>(seed.size()); }
  [[nodiscard]] int64_t num_drafts() const { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] int64_t num_drafts_of(int64_t seq) const {
    return indptr[size_t(seq + 1)] - indptr[size_t(seq)];
  }
  [[nodiscard]] int64_t max_drafts() const {
    int64_t most = 0;
    for (int64_t seq = 0; seq < num_seqs(); ++seq) most = std::max(most, num_drafts_of(seq));
    return most;
  }

  /// The masks of the trees in words of i32 or i64.
  template <class Word>
  [[nodiscard]] std::vector<Word> masks(int64_t num_words) const {
    constexpr int64_t kBits = 8 * sizeof(Word);
    std::vector<Word> words(size_t(num_drafts() * num_words), 0);
    for (int64_t seq = 0; seq < num_seqs(); ++seq) {
      const int64_t begin = indptr[size_t(seq)];
      for (int64_t i = 0; i < num_drafts_of(seq); ++i) {
        for (int64_t j = i; j >= 0; j = parents[size_t(begin + j)]) {
          Word& word = words[size_t((begin + i) * num_words + j / kBits)];
          word = static_cast<Word>(static_cast<uint64_t>(word) | uint64_t{1} << (j % kBits));
        }
      }
    }
    return words;
  }
};

/// softmax of `logits` with `noise` times N(0, 1) added; about one in `zeros` is 0 (none if that is
/// 0), the first never.
inline std::vector<float> noisy_softmax(Generator& rng, const std::vector<float>& logits,
                                        float noise, int64_t zeros) {
  std::normal_distribution<float> normal;
  std::vector<float> p(logits.size());
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) {
    const bool zero = zeros > 0 && i > 0 && random_below(rng, zeros) == 0;
    p[i] = zero ? 0.0f : std::exp(logits[i] + noise * normal(rng));
    sum += double{p[i]};
  }
  for (float& x : p) x = static_cast<float>(double{x} / sum);
  return p;
}

inline int64_t draw_plainly(Generator& rng, const float* p, int64_t n) {
  return std::discrete_distribution<int64_t>(p, p + n)(rng);
}

/// How the drafts of a request look.
struct DraftShape {
  int64_t num_drafts = 0;
  bool is_tree = false;      // else a chain
  float noise = 0.5f;        // between target and draft model
  int64_t zeros = 4;         // see noisy_softmax
  int64_t placeholders = 0;  // about one draft in so many is -1; 0: none
};

/// Adds a request with random distributions; drafts are drawn from their rows of draft_probs, and
/// half of the target's tokens confirm a draft.
inline void add_request(Generator& rng, VerifyBatch& batch, const DraftShape& shape) {
  const auto append = [](std::vector<float>& rows, const std::vector<float>& row) {
    rows.insert(rows.end(), row.begin(), row.end());
  };
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(size_t(batch.vocab_size));
  const auto new_target_row = [&] {
    for (float& x : logits) x = normal(rng);
    append(batch.target_probs, noisy_softmax(rng, logits, 0.0f, shape.zeros));
    batch.target_tokens.push_back(random_below(rng, batch.vocab_size));
  };
  const auto first_row = static_cast<int64_t>(batch.target_tokens.size());
  new_target_row();
  for (int64_t i = 0; i < shape.num_drafts; ++i) {
    const int64_t parent = shape.is_tree ? random_below(rng, i + 1) - 1 : i - 1;
    const float* target = batch.target_probs.data() + (first_row + 1 + parent) * batch.vocab_size;
    for (int64_t t = 0; t < batch.vocab_size; ++t) {
      logits[size_t(t)] = std::log(std::max(target[t], 1e-6f));
    }
    const std::vector<float> q = noisy_softmax(rng, logits, shape.noise, shape.zeros);
    append(batch.draft_probs, q);
    int64_t token = draw_plainly(rng, q.data(), batch.vocab_size);
    if (shape.placeholders > 0 && random_below(rng, shape.placeholders) == 0) token = -1;
    batch.tokens.push_back(token);
    batch.parents.push_back(parent);
    if (token >= 0 && random_below(rng, 2) == 0) {
      batch.target_tokens[size_t(first_row + 1 + parent)] = token;
    }
    new_target_row();
  }
  batch.indptr.push_back(batch.num_drafts());
  batch.seed.push_back(static_cast<int64_t>(rng()));
  batch.step.push_back(random_below(rng, int64_t{1} << 40));
}

}  // namespace heddle
