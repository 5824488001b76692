#pragma once

#include <cstdint>
#include <type_traits>

#include "heddle/core/tensor_view.h"

namespace heddle::cpu {

// These are passed to kernels of a GPU as they are, too: so they are small, and what reads and
// writes elements is constexpr, which nvcc compiles for both.

/// An index as a GPU's loads leave it. A type of its own: where operator[] joins the words, nvcc
/// moves the join before the next load, which then waits.
struct LoadedWords {
  uint32_t low, high;
  bool is_int64;

  [[nodiscard]] constexpr int64_t value() const {
    return is_int64 ? static_cast<int64_t>(uint64_t{high} << 32 | low) : static_cast<int32_t>(low);
  }
};

/// A vector of i32 or i64, read and written as i64: index tensors may have either type. The caller
/// has checked rank and dtype. What is stored in i32 must fit; one made of an absent tensor drops
/// what is stored.
template <class Byte>
class BasicIndexArray {
 public:
  BasicIndexArray() = default;
  /// step: bytes from an element to the next, a multiple of 4.
  constexpr BasicIndexArray(Byte* data, int64_t step, bool is_int64)
      : data_(data), tagged_step_(step | int64_t{is_int64}) {}
  explicit BasicIndexArray(const BasicTensorView<Byte>& t)
      : BasicIndexArray(t.raw(), t.stride(0) * static_cast<int64_t>(size_of(t.dtype())),
                        t.dtype() == DType::kInt64) {}

  [[nodiscard]] constexpr Byte* data() const { return data_; }
  [[nodiscard]] constexpr int64_t step_bytes() const { return tagged_step_ & ~int64_t{1}; }
  [[nodiscard]] constexpr bool is_int64() const { return (tagged_step_ & 1) != 0; }
  [[nodiscard]] constexpr Byte* address(int64_t i) const { return data_ + i * step_bytes(); }
  /// The vector that begins `bytes` bytes further; absent where this one is.
  [[nodiscard]] constexpr BasicIndexArray moved_by(int64_t bytes) const {
    BasicIndexArray moved = *this;
    if (data_ != nullptr) moved.data_ += bytes;
    return moved;
  }

  constexpr int64_t operator[](int64_t i) const {
    const std::byte* element = address(i);
#ifdef __CUDA_ARCH__  // words, joined where the value is needed: no load waits for the one before
    const auto* words = reinterpret_cast<const uint32_t*>(element);
    const uint32_t low = words[0], high = is_int64() ? words[1] : 0;
    return LoadedWords{low, high, is_int64()}.value();
#else
    return is_int64() ? *reinterpret_cast<const int64_t*>(element)
                      : *reinterpret_cast<const int32_t*>(element);
#endif
  }
  constexpr void set(int64_t i, int64_t value) const requires(!std::is_const_v<Byte>) {
    if (data_ == nullptr) return;
    std::byte* element = address(i);
    if (is_int64()) {
      *reinterpret_cast<int64_t*>(element) = value;
    } else {
      *reinterpret_cast<int32_t*>(element) = static_cast<int32_t>(value);
    }
  }

 private:
  Byte* data_ = nullptr;
  int64_t tagged_step_ = 0;  // bytes, plus 1 for i64
};
using IndexArray = BasicIndexArray<const std::byte>;
using MutableIndexArray = BasicIndexArray<std::byte>;

/// Rows of such.
template <class Byte>
class BasicIndexMatrix {
 public:
  BasicIndexMatrix() = default;
  explicit BasicIndexMatrix(const BasicTensorView<Byte>& t)
      : first_(t.raw(), t.stride(1) * static_cast<int64_t>(size_of(t.dtype())),
               t.dtype() == DType::kInt64),
        row_step_(t.stride(0) * static_cast<int64_t>(size_of(t.dtype()))) {}

  [[nodiscard]] constexpr Byte* data() const { return first_.data(); }
  [[nodiscard]] constexpr int64_t row_step_bytes() const { return row_step_; }
  [[nodiscard]] constexpr int64_t column_step_bytes() const { return first_.step_bytes(); }
  [[nodiscard]] constexpr bool is_int64() const { return first_.is_int64(); }

  [[nodiscard]] constexpr BasicIndexArray<Byte> row(int64_t i) const {
    return first_.moved_by(i * row_step_);
  }

 private:
  BasicIndexArray<Byte> first_;  // row 0
  int64_t row_step_ = 0;         // bytes
};
using IndexMatrix = BasicIndexMatrix<const std::byte>;
using MutableIndexMatrix = BasicIndexMatrix<std::byte>;
static_assert(sizeof(IndexArray) == 16 && sizeof(IndexMatrix) == 24);

}  // namespace heddle::cpu
