#pragma once

#include <cstdint>

#include "heddle/core/count.h"

#include "cpu/index_array.h"

namespace heddle::cpu {

/// A Count as kernels of any device take it: read where it lies and clamped to [0, limit]. The
/// caller has checked it with check_count.
class CountReader {
 public:
  /// A count that is not given reads as its limit.
  CountReader(const Count& count, int64_t limit)
      : value_(count.given() ? count.value() : limit),
        limit_(limit),
        on_device_(count.on_device()),
        element_(count.tensor()) {}

  [[nodiscard]] constexpr int64_t limit() const { return limit_; }
  [[nodiscard]] constexpr bool on_device() const { return on_device_; }
  [[nodiscard]] constexpr const IndexArray& element() const { return element_; }
  [[nodiscard]] constexpr int64_t unclamped() const { return on_device_ ? element_[0] : value_; }
  [[nodiscard]] constexpr int64_t read() const {
    const int64_t value = unclamped();
    return value < 0 ? 0 : value < limit_ ? value : limit_;
  }

 private:
  int64_t value_, limit_;
  bool on_device_;
  IndexArray element_;
};

/// For HEDDLE_VALIDATE: what lies on the device must be in range without clamping.
inline void validate_count(const char* count, const CountReader& reader, const char* limit_name) {
  const int64_t value = reader.unclamped();
  HEDDLE_CHECK(value >= 0 && value <= reader.limit(), count, " is ", value, ", expected 0 to ",
               limit_name, " = ", reader.limit());
}

}  // namespace heddle::cpu
