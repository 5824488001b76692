#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "heddle/core/tensor_view.h"

namespace heddle::testing {

/// Brings the tensors of one call to the device that it runs on, so that one test body serves every
/// device: the test makes and checks its data in host memory, passes mirror(view) where it would
/// pass view, and calls back() before it looks.
/// This one is the CPU's, for which a tensor is its own mirror; DeviceMirror is a GPU's.
class Mirror {
 public:
  Mirror() = default;
  virtual ~Mirror() = default;
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// The same tensor on the device: same strides, same address modulo 16, and the gaps between its
  /// rows hold what they do on the host. Two views are two copies, even of the same memory.
  TensorView operator()(const TensorView& t) {
    if (!t) return t;  // absent
    return {place(t.raw(), bytes_of(t), Access::kWrite), t.dtype(), device(), t.shape(),
            t.strides()};
  }
  ConstTensorView operator()(const ConstTensorView& t) {
    if (!t) return t;
    return {constant(t.raw(), bytes_of(t)), t.dtype(), device(), t.shape(), t.strides()};
  }
  /// Plain memory that the call reads.
  template <class T>
  const T* operator()(std::span<const T> values) {
    return reinterpret_cast<const T*>(
        constant(reinterpret_cast<const std::byte*>(values.data()), values.size_bytes()));
  }
  /// For what nothing else keeps alive until back().
  template <class T>
  const T* operator()(std::vector<T>&& values) {
    const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    kept_.push_back(kept);
    return (*this)(std::span<const T>(*kept));
  }
  /// Memory for a workspace or an exchange, until back(); its bytes are all `value`.
  std::span<std::byte> scratch(size_t bytes, unsigned char value = 0xFF) {
    return {blank(bytes, value), bytes};
  }

  /// Waits for the call and copies what it could write back to where it came from; a byte written
  /// outside fails the test.
  /// All mirrored tensors end with it.
  virtual void back() { kept_.clear(); }

  [[nodiscard]] virtual Device device() const { return {}; }

 protected:
  enum class Access { kRead, kWrite };
  virtual std::byte* place(std::byte* host, size_t /*bytes*/, Access /*access*/) { return host; }
  virtual std::byte* blank(size_t bytes, unsigned char value) {
    const auto kept = std::make_shared<std::vector<std::byte>>(bytes, std::byte{value});
    kept_.push_back(kept);
    return kept->data();
  }

 private:
  /// From the first element to the last, gaps included; strides are not negative.
  template <class Byte>
  static size_t bytes_of(const BasicTensorView<Byte>& t) {
    if (t.num_elements() == 0) return 0;
    int64_t last = 0;
    for (int d = 0; d < t.rank(); ++d) last += (t.size(d) - 1) * t.stride(d);
    return size_t(last + 1) * size_of(t.dtype());
  }
  const std::byte* constant(const std::byte* host, size_t bytes) {
    return place(const_cast<std::byte*>(host), bytes, Access::kRead);
  }

  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace heddle::testing
