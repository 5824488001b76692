#pragma once

#include <cstdint>

#include "heddle/core/tensor_view.h"

namespace heddle::cpu {

/// A vector of i32 or i64, read as i64: index tensors may have either type. The caller has checked
/// rank and dtype.
class IndexArray {
 public:
  IndexArray() = default;
  explicit IndexArray(const ConstTensorView& t)
      : data_(t.raw()),
        step_(t.stride(0) * static_cast<int64_t>(size_of(t.dtype()))),
        wide_(t.dtype() == DType::kInt64) {}

  int64_t operator[](int64_t i) const {
    const std::byte* element = data_ + i * step_;
    return wide_ ? *reinterpret_cast<const int64_t*>(element)
                 : *reinterpret_cast<const int32_t*>(element);
  }

 private:
  const std::byte* data_ = nullptr;
  int64_t step_ = 0;  // bytes
  bool wide_ = false;
};

/// The same for an output: what is stored in i32 must fit. One made of an absent tensor drops what is stored.
class MutableIndexArray {
 public:
  MutableIndexArray() = default;
  MutableIndexArray(std::byte* data, int64_t step, bool wide)
      : data_(data), step_(step), wide_(wide) {}
  explicit MutableIndexArray(const TensorView& t)
      : data_(t.raw()),
        step_(t.stride(0) * static_cast<int64_t>(size_of(t.dtype()))),
        wide_(t.dtype() == DType::kInt64) {}

  int64_t operator[](int64_t i) const {
    const std::byte* element = data_ + i * step_;
    return wide_ ? *reinterpret_cast<const int64_t*>(element)
                 : *reinterpret_cast<const int32_t*>(element);
  }
  void set(int64_t i, int64_t value) const {
    if (data_ == nullptr) return;
    std::byte* element = data_ + i * step_;
    if (wide_) {
      *reinterpret_cast<int64_t*>(element) = value;
    } else {
      *reinterpret_cast<int32_t*>(element) = static_cast<int32_t>(value);
    }
  }

 private:
  std::byte* data_ = nullptr;
  int64_t step_ = 0;  // bytes
  bool wide_ = false;
};

/// Rows of such.
class MutableIndexMatrix {
 public:
  MutableIndexMatrix() = default;
  explicit MutableIndexMatrix(const TensorView& t)
      : data_(t.raw()),
        row_step_(t.stride(0) * static_cast<int64_t>(size_of(t.dtype()))),
        column_step_(t.stride(1) * static_cast<int64_t>(size_of(t.dtype()))),
        wide_(t.dtype() == DType::kInt64) {}

  [[nodiscard]] MutableIndexArray row(int64_t i) const {
    if (data_ == nullptr) return {};
    return {data_ + i * row_step_, column_step_, wide_};
  }

 private:
  std::byte* data_ = nullptr;
  int64_t row_step_ = 0, column_step_ = 0;  // bytes
  bool wide_ = false;
};

}  // namespace heddle::cpu
