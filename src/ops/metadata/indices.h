#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "heddle/core/tensor_view.h"

namespace heddle {

/// Numbers that are read from a tensor and used as a length or an offset are held to this, so that sums of some of them
/// cannot overflow, whatever the tensor holds. No tensor is that long.
inline constexpr int64_t kHuge = int64_t{1} << 60;

/// 256 numbers up to this add up within 32 bits.
inline constexpr int64_t kSmallSum = int64_t{1} << 23;

[[nodiscard]] constexpr int64_t bounded(int64_t x) { return std::clamp(x, -kHuge, kHuge); }
/// A length as the ops count it: below 0 is 0.
[[nodiscard]] constexpr int64_t length_of(int64_t x) { return std::clamp<int64_t>(x, 0, kHuge); }

/// A vector of i32 or i64 of any stride, read and written as i64. Kernel-ready. A default-made one is empty.
template <class Byte>
struct BasicIndices {
  Byte* data = nullptr;
  int64_t size = 0;
  int64_t stride = 0;  // elements
  bool wide = false;   // i64

  BasicIndices() = default;
  BasicIndices(Byte* first, int64_t extent, int64_t step, bool is_wide)
      : data(first), size(extent), stride(step), wide(is_wide) {}
  template <class Other>
    requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
  BasicIndices(const BasicIndices<Other>& o)  // NOLINT(google-explicit-constructor)
      : BasicIndices(o.data, o.size, o.stride, o.wide) {}
  /// Of a vector or a scalar; of an absent tensor nothing.
  explicit BasicIndices(const BasicTensorView<Byte>& t)
      : data(t.raw()),
        size(t ? t.num_elements() : 0),
        stride(t.rank() == 1 ? t.stride(0) : 0),
        wide(t.dtype() == DType::kInt64) {}

  /// Whether it has elements.
  explicit operator bool() const { return size > 0; }

  int64_t operator[](int64_t i) const {
    return wide ? reinterpret_cast<const int64_t*>(data)[i * stride]
                : reinterpret_cast<const int32_t*>(data)[i * stride];
  }
  void set(int64_t i, int64_t value) const requires(!std::is_const_v<Byte>) {
    if (wide) {
      reinterpret_cast<int64_t*>(data)[i * stride] = value;
    } else {
      reinterpret_cast<int32_t*>(data)[i * stride] = static_cast<int32_t>(value);
    }
  }
};
using Indices = BasicIndices<std::byte>;
using ConstIndices = BasicIndices<const std::byte>;

/// A matrix of the same, seen row by row.
template <class Byte>
struct BasicIndexRows {
  Byte* data = nullptr;
  int64_t rows = 0, width = 0;
  int64_t row_stride = 0, stride = 0;  // elements
  bool wide = false;

  BasicIndexRows() = default;
  explicit BasicIndexRows(const BasicTensorView<Byte>& t) {
    if (!t) return;
    data = t.raw();
    rows = t.size(0);
    width = t.size(1);
    row_stride = t.stride(0);
    stride = t.stride(1);
    wide = t.dtype() == DType::kInt64;
  }

  explicit operator bool() const { return rows > 0 && width > 0; }

  [[nodiscard]] BasicIndices<Byte> operator[](int64_t row) const {
    return {data + row * row_stride * int64_t{wide ? 8 : 4}, width, stride, wide};
  }
};
using IndexRows = BasicIndexRows<std::byte>;
using ConstIndexRows = BasicIndexRows<const std::byte>;

static_assert(std::is_trivially_copyable_v<Indices> && std::is_trivially_copyable_v<IndexRows>);

/// What is written where the formula of an op does not reach.
struct Fill {
  bool on = false;
  int64_t value = 0;
};

/// Part of a ragged row: [begin, end), none when begin >= end.
struct Range {
  int64_t begin, end;

  /// The j of this range with 0 <= offset + j < size.
  [[nodiscard]] constexpr Range within(int64_t offset, int64_t size) const {
    return {std::max(begin, -offset), std::min(end, size - offset)};
  }
  [[nodiscard]] constexpr int64_t length() const { return std::max<int64_t>(0, end - begin); }
};
static_assert(Range{0, 9}.within(-2, 5).begin == 2 && Range{0, 9}.within(-2, 5).end == 7);
static_assert(Range{3, 9}.within(4, 6).length() == 0);

}  // namespace heddle
