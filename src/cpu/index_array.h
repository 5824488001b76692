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

/// The same for an output: what is stored in i32 must fit.
class MutableIndexArray {
 public:
  MutableIndexArray() = default;
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

}  // namespace heddle::cpu
