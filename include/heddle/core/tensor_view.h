#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "heddle/core/device.h"
#include "heddle/core/dtype.h"
#include "heddle/core/error.h"
#include "heddle/core/product.h"

namespace heddle {

inline constexpr int kMaxRank = 8;

/// Non-owning, trivially copyable view of a strided tensor; strides count elements. Its extents,
/// those of 0 left out, multiply to less than 2^60, so the bytes of any dtype fit 64 bits. Byte is
/// `std::byte` or `const std::byte`. A default-made view is absent: rank 0, no data; ops that take
/// an optional tensor test it with `if (view)`.
template <class Byte>
class BasicTensorView {
 public:
  BasicTensorView() = default;

  /// Row-major, without gaps.
  BasicTensorView(Byte* data, DType dtype, Device device, std::span<const int64_t> shape)
      : data_(data), dtype_(dtype), device_(device) {
    set_shape(shape);
    int64_t stride = 1;
    for (int d = rank_; d-- > 0; stride *= shape_[size_t(d)]) strides_[size_t(d)] = stride;
  }
  BasicTensorView(Byte* data, DType dtype, Device device, std::initializer_list<int64_t> shape)
      : BasicTensorView(data, dtype, device, std::span(shape.begin(), shape.size())) {}

  BasicTensorView(Byte* data, DType dtype, Device device, std::span<const int64_t> shape,
                  std::span<const int64_t> strides)
      : data_(data), dtype_(dtype), device_(device) {
    set_shape(shape);
    HEDDLE_CHECK(strides.size() == shape.size(), "a tensor of rank ", shape.size(), " got ",
                 strides.size(), " strides");
    for (size_t d = 0; d < strides.size(); ++d) strides_[d] = strides[d];
  }

  /// A mutable view converts to a const view, as std::span<T> does.
  template <class Other>
    requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
  BasicTensorView(const BasicTensorView<Other>& o)  // NOLINT(google-explicit-constructor)
      : data_(o.raw()), dtype_(o.dtype()), device_(o.device()), rank_(o.rank()) {
    for (int d = 0; d < rank_; ++d) {
      shape_[size_t(d)] = o.size(d);
      strides_[size_t(d)] = o.stride(d);
    }
  }

  /// Whether a tensor was given at all (an empty tensor is given, too).
  explicit operator bool() const { return data_ != nullptr || rank_ > 0; }

  [[nodiscard]] Byte* raw() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int64_t size(int d) const { return shape_[size_t(d)]; }
  [[nodiscard]] int64_t stride(int d) const { return strides_[size_t(d)]; }
  [[nodiscard]] std::span<const int64_t> shape() const { return {shape_.data(), size_t(rank_)}; }
  [[nodiscard]] std::span<const int64_t> strides() const {
    return {strides_.data(), size_t(rank_)};
  }
  [[nodiscard]] int64_t num_elements() const {
    int64_t n = 1;
    for (const int64_t extent : shape()) n *= extent;
    return n;
  }

  /// The first element, typed. T must be what dtype() says.
  template <class T>
  [[nodiscard]] auto* data() const {
    HEDDLE_CHECK(kDType<T> == dtype_, "tensor holds ", dtype_, ", read as ", kDType<T>);
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return reinterpret_cast<Element*>(data_);
  }

  /// The part [start, start + length) of axis d.
  [[nodiscard]] BasicTensorView narrow(int d, int64_t start, int64_t length) const {
    HEDDLE_CHECK(d >= 0 && d < rank_, "axis ", d, " of a tensor of rank ", rank_);
    HEDDLE_CHECK(start >= 0 && length >= 0 && start <= size(d) && length <= size(d) - start, length,
                 " elements from ", start, " on of axis ", d, ", which has ", size(d));
    BasicTensorView part = *this;
    if (data_ != nullptr) part.data_ = data_ + start * stride(d) * int64_t(size_of(dtype_));
    part.shape_[size_t(d)] = length;
    return part;
  }

 private:
  void set_shape(std::span<const int64_t> shape) {
    HEDDLE_CHECK(shape.size() <= size_t{kMaxRank}, "tensor of rank ", shape.size(), ", at most ",
                 kMaxRank, " is supported");
    rank_ = static_cast<int>(shape.size());
    int64_t elements = 1;
    bool fits = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      HEDDLE_CHECK(shape[d] >= 0, "size(", d, ") of a tensor is ", shape[d]);
      shape_[d] = shape[d];
      if (shape[d] != 0) fits &= !__builtin_mul_overflow(elements, shape[d], &elements);
    }
    constexpr int64_t kMaxElements = (int64_t{1} << 60) - 1;
    HEDDLE_CHECK(fits && elements <= kMaxElements, "the extents of a tensor multiply to more than ",
                 kMaxElements);
  }

  Byte* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  Device device_;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  std::array<int64_t, kMaxRank> strides_{};
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;
static_assert(std::is_trivially_copyable_v<TensorView>);

/// View of host memory as a row-major tensor.
template <class T>
[[nodiscard]] auto host_view(T* data, std::initializer_list<int64_t> shape) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return BasicTensorView<Byte>(reinterpret_cast<Byte*>(data), kDType<std::remove_const_t<T>>,
                               Device{}, shape);
}

}  // namespace heddle
