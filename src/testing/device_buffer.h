#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "heddle/core/tensor_view.h"

#include "device_memory.h"

namespace heddle::testing {

/// n elements on the current CUDA device between two guards, all bytes 0xFF at first:
/// PoisonedBuffer's sibling.
/// With Guards::kNone the elements are the whole allocation, so that compute-sanitizer sees a read
/// one byte past either end.
template <class T>
class DeviceBuffer {
 public:
  enum class Guards { kBoth, kNone };

  explicit DeviceBuffer(size_t n, Guards guards = Guards::kBoth)
      : guard_(guards == Guards::kBoth ? kGuard : 0),
        n_(n),
        memory_(guard_ + n * sizeof(T) + guard_) {
    memory_.fill(0, kPoison, memory_.size());
  }
  explicit DeviceBuffer(std::span<const T> values, Guards guards = Guards::kBoth)
      : DeviceBuffer(values.size(), guards) {
    upload(values);
  }
  explicit DeviceBuffer(const std::vector<T>& values, Guards guards = Guards::kBoth)
      : DeviceBuffer(std::span<const T>(values), guards) {}

  /// The device pointer.
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data() + guard_); }
  [[nodiscard]] size_t size() const { return n_; }
  [[nodiscard]] TensorView view(std::initializer_list<int64_t> shape) const {
    return {memory_.data() + guard_, kDType<T>, device(), shape};
  }
  [[nodiscard]] Device device() const { return {DeviceType::kCuda, current_device()}; }

  /// Copies in and out, for elements from `first` on; both wait for all work of the device.
  void upload(std::span<const T> values, size_t first = 0) {
    memory_.write(offset(first), values.data(), values.size_bytes());
  }
  [[nodiscard]] std::vector<T> download(size_t first, size_t count) const {
    std::vector<T> values(count);
    memory_.read(offset(first), values.data(), count * sizeof(T));
    return values;
  }
  [[nodiscard]] std::vector<T> download() const { return download(0, n_); }
  void poison() { memory_.fill(guard_, kPoison, n_ * sizeof(T)); }

  /// Whether `count` elements from `first` on still have the bytes they began with.
  [[nodiscard]] bool untouched(size_t first, size_t count = 1) const {
    return memory_.count_other(offset(first), kPoison, count * sizeof(T)) == 0;
  }
  [[nodiscard]] bool guards_intact() const {
    return memory_.count_other(0, kPoison, guard_) == 0 &&
           memory_.count_other(offset(n_), kPoison, guard_) == 0;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kPoison = 0xFF;
  [[nodiscard]] size_t offset(size_t element) const { return guard_ + element * sizeof(T); }

  size_t guard_, n_;
  DeviceMemory memory_;
};

}  // namespace heddle::testing
