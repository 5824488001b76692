#pragma once

#include <cmath>
#include <vector>

namespace heddle::ref {

/// The definitions, in double.
inline double scale(double x, double factor) { return x * factor; }
inline double soft_cap(double x, double cap) { return cap * std::tanh(x / cap); }

inline double sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double each : values) sum += each;
  return sum;
}

}  // namespace heddle::ref
