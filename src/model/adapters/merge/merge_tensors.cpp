#include "model/adapters/merge/merge_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "core/random/philox.h"

namespace heddle::model {
namespace {

using Method = AdapterMergeRule::Method;
constexpr int64_t kWords = 4;  // that one counter gives

bool draws_values(const AdapterMergeRule& rule) {
  return rule.method == Method::kDareLinear || rule.method == Method::kDareTies;
}
bool elects_sign(const AdapterMergeRule& rule) {
  return rule.method == Method::kTies || rule.method == Method::kDareTies;
}

uint32_t low(int64_t value) { return static_cast<uint32_t>(static_cast<uint64_t>(value)); }
uint32_t high(int64_t value) { return static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32); }

/// Of elements [kWords block, kWords (block + 1)).
std::array<uint32_t, 4> draws(int64_t seed, uint32_t tensor, uint32_t place, int64_t block) {
  return philox4x32_10({low(block), high(block), tensor, place}, {low(seed), high(seed)});
}

/// A word is kept where it is below this: density 2^32, rounded up.
uint64_t bound_of(const AdapterMergeRule& rule) {
  return static_cast<uint64_t>(std::ceil(rule.density * 0x1p32));
}

void keep_largest(std::span<float> values, double density) {
  const auto size = static_cast<double>(values.size());
  const auto num_kept = static_cast<size_t>(density * size);
  if (num_kept >= values.size()) return;
  if (num_kept == 0) {
    std::ranges::fill(values, 0.0f);
    return;
  }
  std::vector<float> magnitudes(values.size());
  std::ranges::transform(values, magnitudes.begin(), [](float x) { return std::abs(x); });
  const auto smallest = magnitudes.begin() + static_cast<std::ptrdiff_t>(num_kept - 1);
  std::ranges::nth_element(magnitudes, smallest, std::greater());
  const float bound = *smallest;
  // Those before `smallest` are at least as large; of the ones that are as large some stay.
  const auto num_above = std::count_if(magnitudes.begin(), smallest,
                                       [bound](float magnitude) { return magnitude > bound; });
  size_t num_equal = num_kept - static_cast<size_t>(num_above);
  for (float& value : values) {  // without branches, as which are taken is random
    const float magnitude = std::abs(value);
    const bool is_equal = magnitude == bound && num_equal > 0;
    num_equal -= static_cast<size_t>(is_equal);
    value = magnitude > bound || is_equal ? value : 0.0f;
  }
}

void keep_drawn(std::span<float> values, const AdapterMergeRule& rule, uint32_t tensor,
                uint32_t place) {
  const uint64_t bound = bound_of(rule);
  const auto size = std::ssize(values);
  for (int64_t first = 0; first < size; first += kWords) {
    const auto words = draws(rule.seed, tensor, place, first / kWords);
    const int64_t count = std::min(kWords, size - first);
    for (int64_t i = 0; i < count; ++i) {
      float& value = values[static_cast<size_t>(first + i)];
      value = words[static_cast<size_t>(i)] < bound ? value : 0.0f;
    }
  }
}

std::vector<float> thinned(const WeightedTensor& tensor, const AdapterMergeRule& rule,
                           uint32_t number) {
  std::vector<float> values = tensor.values.floats();
  if (draws_values(rule)) {
    keep_drawn(values, rule, number, tensor.place);
  } else {
    keep_largest(values, rule.density);
  }
  return values;
}

double sign_of(float value) {
  return static_cast<double>(value > 0) - static_cast<double>(value < 0);
}

/// What becomes of each element, tensor by tensor.
class ElementSums {
 public:
  explicit ElementSums(size_t size) : sums_(size) {}

  void add(std::span<const float> values, double weight) {
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += weight * values[i];
  }
  /// In the place of `add`, after `vote` of all tensors.
  void add_majority(std::span<const float> values, double weight) {
    counts_.resize(sums_.size());
    for (size_t i = 0; i < sums_.size(); ++i) {
      const double majority = votes_[i] >= 0 ? 1.0 : -1.0;
      const double counts = sign_of(values[i]) == majority ? 1.0 : 0.0;
      sums_[i] += counts * (weight * values[i]);
      counts_[i] += counts;
    }
  }
  void vote(std::span<const float> values, AdapterMergeRule::MajoritySign method) {
    votes_.resize(sums_.size());
    const bool by_total = method == AdapterMergeRule::MajoritySign::kTotal;
    for (size_t i = 0; i < votes_.size(); ++i) {
      votes_[i] += by_total ? static_cast<double>(values[i]) : sign_of(values[i]);
    }
  }
  void write(std::span<float> out, double factor) const {
    for (size_t i = 0; i < sums_.size(); ++i) {
      const double count = counts_.empty() ? 1.0 : std::max(counts_[i], 1.0);
      out[i] = static_cast<float>(factor * sums_[i] / count);
    }
  }

 private:
  std::vector<double> sums_, votes_, counts_;
};

}  // namespace

void merge_tensors(std::span<float> out, std::span<const WeightedTensor> tensors,
                   const AdapterMergeRule& rule, uint32_t tensor) {
  std::vector<std::vector<float>> values;
  values.reserve(tensors.size());
  for (const WeightedTensor& each : tensors) values.push_back(thinned(each, rule, tensor));
  ElementSums sums(out.size());
  if (elects_sign(rule)) {
    for (const std::vector<float>& each : values) sums.vote(each, rule.majority_sign);
  }
  for (size_t j = 0; j < tensors.size(); ++j) {
    if (elects_sign(rule)) {
      sums.add_majority(values[j], tensors[j].weight);
    } else {
      sums.add(values[j], tensors[j].weight);
    }
  }
  sums.write(out, draws_values(rule) ? 1 / rule.density : 1.0);
}

bool is_drawn(const AdapterMergeRule& rule, uint32_t tensor, uint32_t place, int64_t element) {
  const auto words = draws(rule.seed, tensor, place, element / kWords);
  return words[static_cast<size_t>(element % kWords)] < bound_of(rule);
}

}  // namespace heddle::model
