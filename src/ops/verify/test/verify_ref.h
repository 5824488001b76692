#pragma once

#include <cstdint>
#include <vector>

#include "cpu/philox.h"
#include "ops/verify/test/verify_cases.h"

namespace heddle::ref {

/// What a verification says about one request.
struct Verdict {
  std::vector<int64_t> nodes;   // accepted, from the root down
  std::vector<int64_t> tokens;  // theirs, and the one that the target adds
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

inline bool is_below(const VerifyBatch& batch, int64_t begin, int64_t node, int64_t ancestor) {
  while (node > ancestor) node = batch.parents[size_t(begin + node)];
  return node == ancestor;
}

/// Every path whose nodes are the target's choices, the longest of them, the lowest last node among
/// equals; no longer than max_depth.
inline Verdict verify_greedy(const VerifyBatch& batch, int64_t seq, int64_t max_depth) {
  const int64_t begin = batch.indptr[size_t(seq)];
  const int64_t* targets = batch.target_tokens.data() + begin + seq + 1;  // [-1]: after the root
  Verdict best{{}, {targets[-1]}};
  for (int64_t last = 0; last < batch.num_drafts_of(seq); ++last) {
    Verdict path;
    bool confirmed = true;
    for (int64_t i = 0; i <= last; ++i) {
      if (!is_below(batch, begin, last, i)) continue;
      const int64_t token = batch.tokens[size_t(begin + i)];
      confirmed &= token >= 0 && token == targets[batch.parents[size_t(begin + i)]];
      path.nodes.push_back(i);
      path.tokens.push_back(token);
    }
    path.tokens.push_back(targets[last]);
    const auto depth = static_cast<int64_t>(path.nodes.size());
    if (confirmed && depth <= max_depth && path.nodes.size() > best.nodes.size()) best = path;
  }
  return best;
}

inline double sum_of(const std::vector<double>& w) {
  double sum = 0.0;
  for (const double x : w) sum += x;
  return sum;
}

/// The first token whose running sum exceeds u times the sum. A threshold so near to a border that
/// the order of additions matters is met in about one of 1e10 draws.
inline int64_t draw(const std::vector<double>& w, double u) {
  const double threshold = u * sum_of(w);
  double running = 0.0;
  int64_t last = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i] > 0.0) last = static_cast<int64_t>(i);
    running += w[i];
    if (running > threshold) break;
  }
  return last;
}

/// Speculative sampling with the residual written out; use_q: drafts were drawn from draft_probs,
/// else they are one-hot.
inline Verdict verify_stochastic(const VerifyBatch& batch, int64_t seq, int64_t max_depth,
                                 bool use_q) {
  const int64_t begin = batch.indptr[size_t(seq)], vocab = batch.vocab_size;
  const auto row = [vocab](const std::vector<float>& rows, int64_t i) {
    return std::vector<double>(rows.begin() + i * vocab, rows.begin() + (i + 1) * vocab);
  };
  Verdict verdict;
  int64_t node = -1;
  for (;;) {
    const auto depth = static_cast<int64_t>(verdict.nodes.size());
    const int64_t step = batch.step[size_t(seq)] + depth;
    const std::vector<double> p = row(batch.target_probs, begin + seq + 1 + node);
    std::vector<double> w = p;
    int64_t accepted = -1;
    double mass = 1.0;  // of w; p counts as 1
    uint32_t rank = 0;
    for (int64_t i = 0; i < batch.num_drafts_of(seq) && depth < max_depth; ++i) {
      if (batch.parents[size_t(begin + i)] != node) continue;
      const uint32_t k = rank++;
      const int64_t token = batch.tokens[size_t(begin + i)];
      if (token < 0 || k >= 64) continue;
      std::vector<double> q(size_t(vocab), 0.0);
      q[size_t(token)] = 1.0;
      if (use_q) q = row(batch.draft_probs, begin + i);
      const double u = cpu::uniform_draw(batch.seed[size_t(seq)], step, cpu::Draw::kAccept, k);
      if (u * mass * q[size_t(token)] < w[size_t(token)]) {
        accepted = i;
        break;
      }
      for (size_t t = 0; t < w.size(); ++t) {
        w[t] = use_q ? std::max(w[t] - mass * q[t], 0.0) : (q[t] > 0.0 ? 0.0 : w[t]);
      }
      mass = sum_of(w);
    }
    if (accepted < 0) {
      if (!(sum_of(w) > 0.0)) w = p;
      const double u = cpu::uniform_draw(batch.seed[size_t(seq)], step, cpu::Draw::kTarget);
      verdict.tokens.push_back(draw(w, u));
      return verdict;
    }
    verdict.nodes.push_back(accepted);
    verdict.tokens.push_back(batch.tokens[size_t(begin + accepted)]);
    node = accepted;
  }
}

}  // namespace heddle::ref
