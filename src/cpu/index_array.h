#pragma once

#include <cstdint>
#include <type_traits>

#include "heddle/core/tensor_view.h"

namespace heddle::cpu {

/// A vector of i32 or i64, read and written as i64: index tensors may have either type. The caller
/// has checked rank and dtype. What is stored in i32 must fit; one made of an absent tensor drops
/// what is stored.
template <class Byte>
class BasicIndexArray {
 public:
  BasicIndexArray() = default;
  BasicIndexArray(Byte* data, int64_t step, bool is_int64)
      : data_(data), step_(step), is_int64_(is_int64) {}
  explicit BasicIndexArray(const BasicTensorView<Byte>& t)
      : BasicIndexArray(t.raw(), t.stride(0) * static_cast<int64_t>(size_of(t.dtype())),
                        t.dtype() == DType::kInt64) {}

  // What a kernel of another device needs to do the same.
  [[nodiscard]] Byte* data() const { return data_; }
  [[nodiscard]] int64_t step_bytes() const { return step_; }
  [[nodiscard]] bool is_int64() const { return is_int64_; }

  int64_t operator[](int64_t i) const {
    const std::byte* element = data_ + i * step_;
    return is_int64_ ? *reinterpret_cast<const int64_t*>(element)
                     : *reinterpret_cast<const int32_t*>(element);
  }
  void set(int64_t i, int64_t value) const requires(!std::is_const_v<Byte>) {
    if (data_ == nullptr) return;
    std::byte* element = data_ + i * step_;
    if (is_int64_) {
      *reinterpret_cast<int64_t*>(element) = value;
    } else {
      *reinterpret_cast<int32_t*>(element) = static_cast<int32_t>(value);
    }
  }

 private:
  Byte* data_ = nullptr;
  int64_t step_ = 0;  // bytes
  bool is_int64_ = false;
};
using IndexArray = BasicIndexArray<const std::byte>;
using MutableIndexArray = BasicIndexArray<std::byte>;

/// Rows of such.
template <class Byte>
class BasicIndexMatrix {
 public:
  BasicIndexMatrix() = default;
  explicit BasicIndexMatrix(const BasicTensorView<Byte>& t)
      : data_(t.raw()),
        row_step_(t.stride(0) * static_cast<int64_t>(size_of(t.dtype()))),
        column_step_(t.stride(1) * static_cast<int64_t>(size_of(t.dtype()))),
        is_int64_(t.dtype() == DType::kInt64) {}

  [[nodiscard]] Byte* data() const { return data_; }
  [[nodiscard]] int64_t row_step_bytes() const { return row_step_; }
  [[nodiscard]] int64_t column_step_bytes() const { return column_step_; }
  [[nodiscard]] bool is_int64() const { return is_int64_; }

  [[nodiscard]] BasicIndexArray<Byte> row(int64_t i) const {
    if (data_ == nullptr) return {};
    return {data_ + i * row_step_, column_step_, is_int64_};
  }

 private:
  Byte* data_ = nullptr;
  int64_t row_step_ = 0, column_step_ = 0;  // bytes
  bool is_int64_ = false;
};
using IndexMatrix = BasicIndexMatrix<const std::byte>;
using MutableIndexMatrix = BasicIndexMatrix<std::byte>;

}  // namespace heddle::cpu
