#pragma once

#include <initializer_list>
#include <span>

#include "heddle/core/tensor_view.h"

#include "core/device_bytes.h"

namespace heddle {

/// A row-major tensor that owns its memory, on one device; zero when made. Its views can be
/// written, and do not outlive it.
class DeviceTensor {
 public:
  DeviceTensor() = default;  // absent, as a default-made view is
  DeviceTensor(Device device, DType dtype, std::initializer_list<int64_t> shape) {
    const TensorView extents(nullptr, dtype, device, shape);
    num_bytes_ = static_cast<size_t>(extents.num_elements()) * size_of(dtype);
    memory_ = allocate_zeroed(device, num_bytes_);
    view_ = TensorView(memory_.get(), dtype, device, shape);
  }
  /// [size], with the values of host memory.
  template <class T>
  DeviceTensor(const ExecContext& ctx, std::span<const T> values)
      : DeviceTensor(ctx.device, kDType<T>, {static_cast<int64_t>(values.size())}) {
    copy_from_host(ctx, memory_.get(), std::as_bytes(values));
  }

  [[nodiscard]] const TensorView& view() const { return view_; }
  /// The first `count` rows.
  [[nodiscard]] TensorView rows(int64_t count) const { return view_.narrow(0, 0, count); }
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }

 private:
  DeviceBytes memory_;
  size_t num_bytes_ = 0;
  TensorView view_;
};

/// Copies a tensor without gaps, of element type T, into host memory. Done when it returns.
template <class T>
void copy_to_host(const ExecContext& ctx, std::span<T> to, const ConstTensorView& from) {
  HEDDLE_CHECK(from.num_elements() == static_cast<int64_t>(to.size()), "the tensor has ",
               from.num_elements(), " elements, the host has room for ", to.size());
  copy_to_host(ctx, std::as_writable_bytes(to), reinterpret_cast<const std::byte*>(from.data<T>()));
}

}  // namespace heddle
