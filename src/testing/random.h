#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "heddle/core/dtype.h"

namespace heddle::testing {

/// The generator of the running test: seeded afresh in every run with a number that is printed with
/// a failure and that HEDDLE_TEST_SEED repeats.
std::mt19937_64& rng();

/// Uniform in [low, high], both included.
inline int64_t random_int(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng());
}
template <class T>
T pick(std::initializer_list<T> choices) {
  return choices.begin()[random_int(0, static_cast<int64_t>(choices.size()) - 1)];
}
/// n draws from nearly N(0, scale^2), rounded to T: sums of the four uniform numbers of one draw of
/// rng(), so none is beyond 3.47 scale.
template <class T>
std::vector<T> random_normal(size_t n, float scale = 1.0f) {
  constexpr float kMean = 4 * 65535 / 2.0f, kDeviation = 37837.227f;  // sqrt(4 (2^32 - 1) / 12)
  std::mt19937_64& bits = rng();
  std::vector<T> values(n);
  for (T& value : values) {
    const uint64_t draw = bits();
    const uint64_t sum =
        (draw & 0xFFFF) + (draw >> 16 & 0xFFFF) + (draw >> 32 & 0xFFFF) + (draw >> 48);
    value = from_float<T>(scale * ((static_cast<float>(sum) - kMean) / kDeviation));
  }
  return values;
}
/// The values as double, for a reference.
template <class T>
std::vector<double> to_double(const std::vector<T>& values) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const T& value : values) result.push_back(static_cast<double>(to_float(value)));
  return result;
}

}  // namespace heddle::testing
