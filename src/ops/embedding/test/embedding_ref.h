#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::ref {

/// The row of one token, in double. table [vocab_size, width]
inline std::vector<double> embedding(std::span<const double> table, int64_t width, int64_t token) {
  const int64_t vocab_size = static_cast<int64_t>(table.size()) / width;
  std::vector<double> y(size_t(width), 0.0);
  if (token < 0 || token >= vocab_size) return y;
  for (int64_t i = 0; i < width; ++i) y[size_t(i)] = table[size_t(token * width + i)];
  return y;
}

}  // namespace heddle::ref
