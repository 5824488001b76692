#include "model/adapters/merge/merge_tensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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

/// In the order of the magnitudes of finite values.
uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

/// The value, or 0. Without a branch, as which are kept is random.
float kept_if(bool is_kept, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (0u - uint32_t{is_kept}));
}

/// Which values are the largest: those with more magnitude_bits, and of those with as many all but
/// the last ones.
struct Cut {
  uint32_t bits = 0;
  size_t num_dropped = 0;
};

/// The cut below the `num_kept` largest values, at least one. Finds the bits digit by digit, the
/// highest first: counts the digits of all values that are left, and leaves those that have the one
/// in which the cut is.
Cut find_cut(std::span<const float> values, size_t num_kept) {
  constexpr size_t kNumDigits = 2048;
  std::vector<uint32_t> left(values.size());
  std::ranges::transform(values, left.begin(), magnitude_bits);
  for (const int shift : {20, 10, 0}) {  // 31 bits
    std::array<size_t, kNumDigits> counts{};
    for (const uint32_t bits : left) ++counts[bits >> shift & (kNumDigits - 1)];
    size_t digit = kNumDigits - 1;
    for (; counts[digit] < num_kept; --digit) num_kept -= counts[digit];
    size_t num_left = 0;
    for (const uint32_t bits : left) {
      left[num_left] = bits;
      num_left += static_cast<size_t>((bits >> shift & (kNumDigits - 1)) == digit);
    }
    left.resize(num_left);
  }
  return {.bits = left.front(), .num_dropped = left.size() - num_kept};
}

void keep_largest(std::span<float> values, double density) {
  const auto num_kept = static_cast<size_t>(density * static_cast<double>(values.size()));
  if (num_kept >= values.size()) return;
  if (num_kept == 0) {
    std::ranges::fill(values, 0.0f);
    return;
  }
  const Cut cut = find_cut(values, num_kept);
  for (float& value : values) value = kept_if(magnitude_bits(value) >= cut.bits, value);
  size_t num_to_drop = cut.num_dropped;
  for (size_t i = values.size(); num_to_drop > 0;) {
    if (magnitude_bits(values[--i]) != cut.bits) continue;
    values[i] = 0.0f;
    --num_to_drop;
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
      value = kept_if(words[static_cast<size_t>(i)] < bound, value);
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

/// What becomes of some elements, tensor by tensor. All loops have one length, so that the compiler
/// makes vectors of them.
class ElementSums {
 public:
  static constexpr size_t kSize = 512;  // so that all sums stay in the nearest cache
  using Values = std::array<float, kSize>;

  void add(const Values& values, double weight) {
    for (size_t i = 0; i < kSize; ++i) sums_[i] += weight * static_cast<double>(values[i]);
  }
  /// In the place of `add`, after the votes of all tensors.
  void add_majority(const Values& values, double weight) {
    for (size_t i = 0; i < kSize; ++i) {
      const auto value = static_cast<double>(values[i]);
      const double majority = votes_[i] >= 0 ? 1.0 : -1.0;
      const double counts = majority * value > 0 ? 1.0 : 0.0;
      sums_[i] += counts * (weight * value);
      counts_[i] += counts;
    }
  }
  void vote_by_values(const Values& values) {
    for (size_t i = 0; i < kSize; ++i) votes_[i] += static_cast<double>(values[i]);
  }
  void vote_by_signs(const Values& values) {
    for (size_t i = 0; i < kSize; ++i) {
      const auto value = static_cast<double>(values[i]);
      votes_[i] += value > 0 ? 1.0 : 0.0;
      votes_[i] -= value < 0 ? 1.0 : 0.0;
    }
  }
  [[nodiscard]] Values result(double factor) const {
    Values result;
    for (size_t i = 0; i < kSize; ++i) {
      const double count = counts_[i] > 1.0 ? counts_[i] : 1.0;
      result[i] = static_cast<float>(factor * sums_[i] / count);
    }
    return result;
  }

 private:
  std::array<double, kSize> sums_{}, votes_{}, counts_{};
};

}  // namespace

void merge_tensors(std::span<float> out, std::span<const WeightedTensor> tensors,
                   const AdapterMergeRule& rule, uint32_t tensor) {
  std::vector<std::vector<float>> values;
  values.reserve(tensors.size());
  for (const WeightedTensor& each : tensors) values.push_back(thinned(each, rule, tensor));
  const bool by_total = rule.majority_sign == AdapterMergeRule::MajoritySign::kTotal;
  const double factor = draws_values(rule) ? 1 / rule.density : 1.0;
  for (size_t first = 0; first < out.size(); first += ElementSums::kSize) {
    const size_t count = std::min(ElementSums::kSize, out.size() - first);
    const auto part_of = [&](size_t j) {
      ElementSums::Values part{};
      std::ranges::copy(std::span(values[j]).subspan(first, count), part.begin());
      return part;
    };
    ElementSums sums;
    for (size_t j = 0; elects_sign(rule) && j < tensors.size(); ++j) {
      by_total ? sums.vote_by_values(part_of(j)) : sums.vote_by_signs(part_of(j));
    }
    for (size_t j = 0; j < tensors.size(); ++j) {
      elects_sign(rule) ? sums.add_majority(part_of(j), tensors[j].weight)
                        : sums.add(part_of(j), tensors[j].weight);
    }
    const ElementSums::Values result = sums.result(factor);
    std::ranges::copy(std::span(result).first(count), out.subspan(first, count).begin());
  }
}

bool is_drawn(const AdapterMergeRule& rule, uint32_t tensor, uint32_t place, int64_t element) {
  const auto words = draws(rule.seed, tensor, place, element / kWords);
  return words[static_cast<size_t>(element % kWords)] < bound_of(rule);
}

}  // namespace heddle::model
