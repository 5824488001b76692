#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "heddle/core/dtype.h"

namespace heddle::testing {

/// The generator of the running test: seeded afresh in every run with a number that is printed with a failure and that
/// HEDDLE_TEST_SEED repeats.
std::mt19937_64& rng();

/// Uniform in [low, high], both included.
inline int64_t random_int(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng());
}
template <class T>
T pick(std::initializer_list<T> choices) {
  return choices.begin()[random_int(0, static_cast<int64_t>(choices.size()) - 1)];
}
/// n draws from N(0, scale^2), rounded to T.
template <class T>
std::vector<T> random_normal(size_t n, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<T> values(n);
  for (T& value : values) value = from_float<T>(normal(rng()));
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
