#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace heddle::ref {

struct SamplingOptions {
  float temperature;
  int32_t top_k;
  double top_p, min_p;
};

/// The tokens that may be drawn, in the order of choice, with probabilities that sum to 1. Logits
/// are finite or -infinity, one at least is finite.
struct Candidates {
  std::vector<int32_t> tokens;
  std::vector<double> probabilities;
};

/// The definition, in double, with a plain sort.
inline Candidates candidates(std::span<const float> logits, const SamplingOptions& options) {
  Candidates c;
  c.tokens.resize(logits.size());
  std::iota(c.tokens.begin(), c.tokens.end(), 0);
  std::stable_sort(c.tokens.begin(), c.tokens.end(),
                   [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  const double largest = logits[size_t(c.tokens[0])];
  for (const int32_t token : c.tokens) {
    c.probabilities.push_back(std::exp((logits[size_t(token)] - largest) / options.temperature));
  }
  const auto keep = [&c](size_t n) {
    c.tokens.resize(n);
    c.probabilities.resize(n);
    const double total = std::accumulate(c.probabilities.begin(), c.probabilities.end(), 0.0);
    for (double& p : c.probabilities) p /= total;
  };
  const bool cut = options.top_k > 0 && size_t(options.top_k) < logits.size();
  keep(cut ? size_t(options.top_k) : logits.size());
  if (options.top_p < 1.0) {
    size_t n = 1;
    for (double sum = c.probabilities[0]; sum < options.top_p && n < c.tokens.size(); ++n) {
      sum += c.probabilities[n];
    }
    keep(n);
  }
  if (options.min_p > 0.0) {
    size_t n = 1;
    while (n < c.tokens.size() && c.probabilities[n] >= options.min_p * c.probabilities[0]) ++n;
    keep(n);
  }
  return c;
}

/// log softmax(logits)[token]; NaN counts as -infinity.
inline double logprob(std::span<const float> logits, size_t token) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (const float x : logits) largest = x > largest ? x : largest;
  for (const float x : logits) sum += std::isnan(x) ? 0.0 : std::exp(x - largest);
  return logits[token] - largest - std::log(sum);
}

}  // namespace heddle::ref
