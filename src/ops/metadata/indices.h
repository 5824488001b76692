#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "heddle/core/tensor_view.h"

namespace heddle {

/// Numbers that are read from a tensor and used as a length or an offset are held to this, so that
/// sums of some of them cannot overflow, whatever the tensor holds. No tensor is that long.
inline constexpr int64_t kHuge = int64_t{1} << 60;

/// 256 numbers up to this add up within 32 bits.
inline constexpr int64_t kSmallSum = int64_t{1} << 23;

// Without std::clamp, which takes references: to a kernel kHuge is a value and has no address.
[[nodiscard]] constexpr int64_t bounded(int64_t x) {
  const int64_t most = x < kHuge ? x : kHuge;
  return most > -kHuge ? most : -kHuge;
}
/// A length as the ops count it: below 0 is 0.
[[nodiscard]] constexpr int64_t length_of(int64_t x) {
  const int64_t most = x < kHuge ? x : kHuge;
  return most > 0 ? most : 0;
}

/// A vector of i32 or i64 of any stride, read and written as i64. Kernel-ready. A default-made one
/// is empty.
template <class Byte>
struct BasicIndexList {
  Byte* data = nullptr;
  int64_t size = 0;
  int64_t stride = 0;  // elements
  bool is_int64 = false;

  BasicIndexList() = default;
  constexpr BasicIndexList(Byte* first, int64_t extent, int64_t step, bool int64_elements)
      : data(first), size(extent), stride(step), is_int64(int64_elements) {}
  template <class Other>
    requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
  BasicIndexList(const BasicIndexList<Other>& o)  // NOLINT(google-explicit-constructor)
      : BasicIndexList(o.data, o.size, o.stride, o.is_int64) {}
  /// Of a vector or a scalar; of an absent tensor nothing.
  explicit BasicIndexList(const BasicTensorView<Byte>& t)
      : data(t.raw()),
        size(t ? t.num_elements() : 0),
        stride(t.rank() == 1 ? t.stride(0) : 0),
        is_int64(t.dtype() == DType::kInt64) {}

  [[nodiscard]] constexpr int64_t element_bytes() const { return is_int64 ? 8 : 4; }
  [[nodiscard]] constexpr int64_t step_bytes() const { return stride * element_bytes(); }
  /// Whether it has elements.
  explicit operator bool() const { return size > 0; }

  constexpr int64_t operator[](int64_t i) const {
    return is_int64 ? reinterpret_cast<const int64_t*>(data)[i * stride]
                    : reinterpret_cast<const int32_t*>(data)[i * stride];
  }
  constexpr void set(int64_t i, int64_t value) const requires(!std::is_const_v<Byte>) {
    std::byte* const element = data + i * step_bytes();
    if (is_int64) {
      *reinterpret_cast<int64_t*>(element) = value;
    } else {
      *reinterpret_cast<int32_t*>(element) = static_cast<int32_t>(value);
    }
  }
};
using IndexList = BasicIndexList<std::byte>;
using ConstIndexList = BasicIndexList<const std::byte>;

/// A matrix of the same, seen row by row.
template <class Byte>
struct BasicIndexTable {
  Byte* data = nullptr;
  int64_t rows = 0, width = 0;
  int64_t row_stride = 0, stride = 0;  // elements
  bool is_int64 = false;

  BasicIndexTable() = default;
  explicit BasicIndexTable(const BasicTensorView<Byte>& t) {
    if (!t) return;
    data = t.raw();
    rows = t.size(0);
    width = t.size(1);
    row_stride = t.stride(0);
    stride = t.stride(1);
    is_int64 = t.dtype() == DType::kInt64;
  }

  [[nodiscard]] constexpr int64_t element_bytes() const { return is_int64 ? 8 : 4; }
  [[nodiscard]] constexpr int64_t row_step_bytes() const { return row_stride * element_bytes(); }
  [[nodiscard]] constexpr int64_t step_bytes() const { return stride * element_bytes(); }
  explicit operator bool() const { return rows > 0 && width > 0; }

  [[nodiscard]] constexpr BasicIndexList<Byte> operator[](int64_t row) const {
    return {data + row * row_stride * element_bytes(), width, stride, is_int64};
  }
};
using IndexTable = BasicIndexTable<std::byte>;
using ConstIndexTable = BasicIndexTable<const std::byte>;

/// Whether elements are neighbours and extents leave room for more in 32 bits: what nearly all
/// index tensors are, and takes a kernel fewer instructions.
inline constexpr int64_t kMaxContiguous = int64_t{1} << 30;
template <class Byte>
[[nodiscard]] bool is_contiguous(const BasicIndexList<Byte>& t) {
  return t.size == 0 || ((t.stride == 1 || t.size == 1) && t.size <= kMaxContiguous);
}
template <class Byte>
[[nodiscard]] bool is_contiguous(const BasicIndexTable<Byte>& t) {
  return t.rows == 0 || (t.stride == 1 && t.width <= kMaxContiguous && t.row_stride >= 0 &&
                         t.row_stride < kMaxContiguous);
}
/// Whether elements, if there are any, are i32: these take fewer still.
template <class Byte>
[[nodiscard]] bool is_i32(const BasicIndexList<Byte>& t) {
  return t.size == 0 || !t.is_int64;
}
template <class Byte>
[[nodiscard]] bool is_i32(const BasicIndexTable<Byte>& t) {
  return t.rows == 0 || !t.is_int64;
}

static_assert(std::is_trivially_copyable_v<IndexList> && std::is_trivially_copyable_v<IndexTable>);

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
