#pragma once

#include <cstdint>

namespace heddle::cpu {

/// Features that share a scale, and those that a sum is kept of.
inline constexpr int64_t kInt8Block = 32, kInt8Half = 16;

/// Rows of x rounded to 8 bits. Of each eight codes the four of even features come first, then the
/// four of odd ones: as the words of packed weights give theirs.
struct Int8Rows {
  int8_t* codes = nullptr;  // [num_rows, in_features]
  float* scales = nullptr;  // [num_rows, in_features / kInt8Block]
  int32_t* sums = nullptr;  // [num_rows, in_features / kInt8Half], of the codes
  int64_t in_features = 0;

  /// The rows from `row` on.
  [[nodiscard]] Int8Rows from(int64_t row) const {
    return {codes + row * in_features, scales + row * (in_features / kInt8Block),
            sums + row * (in_features / kInt8Half), in_features};
  }
};

}  // namespace heddle::cpu
