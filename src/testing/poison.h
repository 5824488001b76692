#pragma once

#include <cstring>
#include <vector>

#include "heddle/core/tensor_view.h"

namespace heddle::testing {

/// A buffer of n elements between two guards, all bytes 0xFF at first: NaN in every float type, -1
/// in every integer type.
/// So what an op must not touch can be distinguished from what it wrote.
template <class T>
class PoisonedBuffer {
 public:
  explicit PoisonedBuffer(size_t n) : bytes_(kGuard + n * sizeof(T) + kGuard, 0xFF), n_(n) {}

  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + kGuard); }
  [[nodiscard]] size_t size() const { return n_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  TensorView view(std::initializer_list<int64_t> shape) { return host_view(data(), shape); }

  /// Whether element i still has the bytes it began with.
  [[nodiscard]] bool untouched(size_t i) const {
    for (size_t b = 0; b < sizeof(T); ++b) {
      if (bytes_[kGuard + i * sizeof(T) + b] != 0xFF) return false;
    }
    return true;
  }
  [[nodiscard]] bool guards_intact() const {
    for (size_t b = 0; b < kGuard; ++b) {
      if (bytes_[b] != 0xFF || bytes_[bytes_.size() - 1 - b] != 0xFF) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 256;
  std::vector<unsigned char> bytes_;
  size_t n_;
};

}  // namespace heddle::testing
