#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "heddle/ops/attention.h"

namespace heddle::ref {

/// x [head_dim] turned by its position, by the words of RopeParams.
inline std::vector<double> rotated(const double* x, int head_dim, int64_t position,
                                   const std::optional<RopeParams>& rope) {
  std::vector<double> y(x, x + head_dim);
  if (!rope) return y;
  const int rotary_dim = rope->rotary_dim != 0 ? rope->rotary_dim : head_dim;
  const int n = rotary_dim / 2;
  for (int d = 0; d < n; ++d) {
    const double angle = static_cast<double>(position) * rope_frequency(*rope, rotary_dim, d);
    const double cos = rope->attention_factor * std::cos(angle);
    const double sin = rope->attention_factor * std::sin(angle);
    y[size_t(d)] = x[d] * cos - x[d + n] * sin;
    y[size_t(d + n)] = x[d + n] * cos + x[d] * sin;
  }
  return y;
}

/// Keys k [kv_len, num_kv_heads, head_dim], each turned by its position.
inline std::vector<double> rotated_keys(const std::vector<double>& k, int num_kv_heads,
                                        int head_dim, const std::optional<RopeParams>& rope) {
  if (!rope) return k;
  std::vector<double> keys;
  for (size_t at = 0; at < k.size(); at += size_t(head_dim)) {
    const auto position = static_cast<int64_t>(at) / head_dim / num_kv_heads;
    const std::vector<double> key = rotated(&k[at], head_dim, position, rope);
    keys.insert(keys.end(), key.begin(), key.end());
  }
  return keys;
}

struct AttentionRow {
  std::vector<double> o;
  double lse;
};

/// One row of attention in double. q [head_dim] at `position`; keys of rotated_keys and v [kv_len,
/// num_kv_heads, head_dim]. With a tree mask the query sees the last tree->size() keys by its bits.
inline AttentionRow attention(const double* q, int64_t position, const std::vector<double>& keys,
                              const std::vector<double>& v, int64_t kv_len, int num_kv_heads,
                              int kv_head, int head_dim, const AttentionOptions& options,
                              const std::vector<bool>* tree = nullptr) {
  const double scale = options.sm_scale ? *options.sm_scale : 1.0 / std::sqrt(head_dim);
  const std::vector<double> query = rotated(q, head_dim, position, options.rope);
  std::vector<double> scores;
  std::vector<int64_t> seen;
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < kv_len; ++j) {
    if (tree != nullptr) {
      const int64_t number = j - (kv_len - std::ssize(*tree));
      if (number >= 0 && !(*tree)[size_t(number)]) continue;
    } else if (options.causal && j > position) {
      continue;
    }
    if (options.window_left >= 0 && j < position - options.window_left) continue;
    const auto at = static_cast<size_t>((j * num_kv_heads + kv_head) * head_dim);
    double s = 0.0;
    for (int d = 0; d < head_dim; ++d) s += query[size_t(d)] * keys[at + size_t(d)];
    s *= scale;
    if (options.logits_soft_cap > 0.0f) {
      s = options.logits_soft_cap * std::tanh(s / options.logits_soft_cap);
    }
    scores.push_back(s);
    seen.push_back(j);
    max = std::max(max, s);
  }
  AttentionRow row{std::vector<double>(static_cast<size_t>(head_dim), 0.0), max};
  if (seen.empty()) return row;
  double sum = 0.0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double weight = std::exp(scores[i] - max);
    sum += weight;
    const auto at = static_cast<size_t>((seen[i] * num_kv_heads + kv_head) * head_dim);
    for (size_t d = 0; d < row.o.size(); ++d) row.o[d] += weight * v[at + d];
  }
  for (double& x : row.o) x /= sum;
  row.lse = max + std::log(sum);
  return row;
}

}  // namespace heddle::ref
