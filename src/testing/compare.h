#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "heddle/core/dtype.h"

namespace heddle::testing {

/// max |got - want| / max |want|; a NaN anywhere gives infinity, never a pass.
template <class T>
double relative_error(std::span<const T> got, std::span<const double> want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double error = 0.0, top = 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = std::abs(static_cast<double>(to_float(got[i])) - want[i]);
    if (!(e <= 1e300)) return std::numeric_limits<double>::infinity();  // also for NaN
    error = std::max(error, e);
    top = std::max(top, std::abs(want[i]));
  }
  return error / top;
}

/// Whether two arrays hold the same bits.
template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Half a unit in the last place of T, relative: the error of one rounding.
template <class T>
inline constexpr double kRounding = 0x1p-24;
template <>
inline constexpr double kRounding<half> = 0x1p-11;
template <>
inline constexpr double kRounding<bfloat16> = 0x1p-8;

/// What relative_error may reach for a result that is a sum of `length` products in f32, rounded
/// once to T. Errors of a sum grow like the root of its length for random data; the factors leave
/// room for maxima over many elements.
template <class T>
double tolerance(int64_t length) {
  return 1.01 * kRounding<T> +
         8.0 * 0x1p-24 * std::sqrt(static_cast<double>(std::max<int64_t>(length, 4)));
}

}  // namespace heddle::testing
