#include "model/config/score_head.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <utility>

namespace heddle::model {
namespace {

/// In eight chains, which the compiler keeps in a vector; always the same ones.
double dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kChains = 8;
  std::array<double, kChains> sums{};
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    for (int64_t c = 0; c < kChains; ++c) {
      sums[size_t(c)] += static_cast<double>(a[i + c]) * static_cast<double>(b[i + c]);
    }
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

void softmax(std::vector<double>& x) {
  const double largest = *std::ranges::max_element(x);
  double sum = 0;
  for (double& each : x) sum += each = std::exp(each - largest);
  for (double& each : x) each /= sum;
}

}  // namespace

ScoreHead::ScoreHead(std::vector<float> weight, std::vector<float> bias,
                     std::vector<std::string> labels, ScoreActivation activation)
    : weight_(std::move(weight)),
      bias_(std::move(bias)),
      labels_(std::move(labels)),
      activation_(activation) {
  assert(!labels_.empty() && weight_.size() % labels_.size() == 0);
}

std::vector<float> ScoreHead::values(std::span<const float> h, bool activates) const {
  std::vector<double> logits(labels_.size());
  for (size_t label = 0; label < logits.size(); ++label) {
    logits[label] = dot(&weight_[label * h.size()], h.data(), std::ssize(h));
    if (!bias_.empty()) logits[label] += static_cast<double>(bias_[label]);
  }
  if (activates && activation_ == ScoreActivation::kSoftmax) softmax(logits);
  if (activates && activation_ == ScoreActivation::kSigmoid) {
    for (double& each : logits) each = 1.0 / (1.0 + std::exp(-each));
  }
  return {logits.begin(), logits.end()};
}

std::vector<std::string> unnamed_labels(int64_t num_labels) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < num_labels; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

}  // namespace heddle::model
