#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "heddle/core/error.h"

namespace heddle {

/// The product of extents and of bytes per element. Throws kInvalidArgument where it is above
/// 2^63 - 1 or a factor is negative; `what` is what the error calls it:
///   "packed bytes: 18014398509481984 x 1024 x 64, expected 0 to 9223372036854775807"
[[nodiscard]] inline int64_t checked_product(const char* what,
                                             std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  bool fits = true;
  for (const int64_t factor : factors) {
    fits &= factor >= 0 && !__builtin_mul_overflow(product, factor, &product);
  }
  if (fits) [[likely]]
    return product;
  std::string text;
  for (const int64_t factor : factors) {
    text += (text.empty() ? "" : " x ") + std::to_string(factor);
  }
  throw_error(ErrorCode::kInvalidArgument, what, ": ", text, ", expected 0 to ",
              std::numeric_limits<int64_t>::max());
}

/// The extents of data that exist are far below: where no tensor is given yet that must exist, a
/// function that tells a size takes extents up to here, so that its sums and products fit 64 bits.
inline constexpr int64_t kMaxExtent = int64_t{1} << 40;

/// Throws kInvalidArgument unless 0 <= extent <= most.
inline void check_extent(const char* name, int64_t extent, int64_t most = kMaxExtent) {
  HEDDLE_CHECK(extent >= 0 && extent <= most, name, " is ", extent, ", expected 0 to ", most);
}

}  // namespace heddle
