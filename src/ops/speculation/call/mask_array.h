#pragma once

#include <cstdint>
#include <cstring>

#include "heddle/core/tensor_view.h"

namespace heddle {

/// A vector of bool or u8. Byte is `std::byte` or `const std::byte`. One made of an absent tensor
/// drops what is stored.
template <class Byte>
class BasicMaskArray {
 public:
  BasicMaskArray() = default;
  explicit BasicMaskArray(const BasicTensorView<Byte>& t) : data_(t.raw()), step_(t.stride(0)) {}

  [[nodiscard]] constexpr Byte* data() const { return data_; }
  [[nodiscard]] bool has_gaps() const { return data_ != nullptr && step_ != 1; }

  constexpr bool operator[](int64_t i) const { return data_[i * step_] != std::byte{0}; }
  constexpr void set(int64_t i, bool value) const {
    if (data_ != nullptr) data_[i * step_] = static_cast<std::byte>(value);
  }
  /// Elements [begin, end) become false.
  void clear(int64_t begin, int64_t end) const {
    if (data_ == nullptr || begin >= end) return;
    if (step_ == 1) {
      std::memset(data_ + begin, 0, static_cast<size_t>(end - begin));
    } else {
      for (int64_t i = begin; i < end; ++i) data_[i * step_] = std::byte{0};
    }
  }

 private:
  Byte* data_ = nullptr;
  int64_t step_ = 0;
};
using MutableMaskArray = BasicMaskArray<std::byte>;
using MaskArray = BasicMaskArray<const std::byte>;

}  // namespace heddle
