#pragma once

#include <cmath>
#include <span>
#include <vector>

namespace heddle::ref {

/// The definition for one row, in double. weight is without the offset.
inline std::vector<double> rms_norm(std::span<const double> x, std::span<const double> weight,
                                    double epsilon, int weight_offset) {
  double squares = 0.0;
  for (const double v : x) squares += v * v;
  const double rms = std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / rms * (weight_offset + weight[i]);
  return y;
}

}  // namespace heddle::ref
