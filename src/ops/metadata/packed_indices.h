#pragma once

#include <cstdint>

#include "ops/metadata/indices.h"

// Indices as kernels take them: a launch carries its parameters along, and each 64 bytes of them cost a kernel 0.1 us.

namespace heddle::cuda::metadata {

/// Indices without their extent. `step` is the stride in bytes, a multiple of 4; its lowest bit says that elements are i64.
template <class Byte>
struct BasicPacked {
  Byte* data = nullptr;
  int64_t step = 0;

  BasicPacked() = default;
  explicit BasicPacked(const BasicIndices<Byte>& t)
      : data(t.size > 0 ? t.data : nullptr), step(t.stride * (t.wide ? 8 : 4) + (t.wide ? 1 : 0)) {}
};
using Packed = BasicPacked<std::byte>;
using ConstPacked = BasicPacked<const std::byte>;

/// The same for rows; `row_step` in bytes.
template <class Byte>
struct BasicPackedRows {
  BasicPacked<Byte> row;  // row 0
  int64_t row_step = 0;

  BasicPackedRows() = default;
  explicit BasicPackedRows(const BasicIndexRows<Byte>& t)
      : row_step(t.row_stride * (t.wide ? 8 : 4)) {
    if (t) row = BasicPacked<Byte>(t[0]);
  }
};
using PackedRows = BasicPackedRows<std::byte>;
using ConstPackedRows = BasicPackedRows<const std::byte>;

/// Neighbouring i32: what nearly all index tensors are, and takes a kernel fewer instructions.
template <class Number>
struct BasicPlain {
  Number* data = nullptr;

  BasicPlain() = default;
  template <class Byte>
  explicit BasicPlain(const BasicIndices<Byte>& t)
      : data(t.size > 0 ? reinterpret_cast<Number*>(t.data) : nullptr) {}
};
template <class Number>
struct BasicPlainRows {
  BasicPlain<Number> row;  // row 0
  int32_t row_step = 0;    // elements

  BasicPlainRows() = default;
  template <class Byte>
  explicit BasicPlainRows(const BasicIndexRows<Byte>& t)
      : row_step(static_cast<int32_t>(t.row_stride)) {
    if (t) row = BasicPlain<Number>(t[0]);
  }
};

/// Whether the extents and strides of a plain tensor leave room for more in 32 bits.
inline constexpr int64_t kPlainSize = int64_t{1} << 30;
template <class Byte>
[[nodiscard]] bool is_plain(const BasicIndices<Byte>& t) {
  return t.size == 0 || (!t.wide && (t.stride == 1 || t.size == 1) && t.size <= kPlainSize);
}
template <class Byte>
[[nodiscard]] bool is_plain(const BasicIndexRows<Byte>& t) {
  return t.rows == 0 || (!t.wide && t.stride == 1 && t.width <= kPlainSize &&
                         t.row_stride >= -kPlainSize && t.row_stride <= kPlainSize);
}

}  // namespace heddle::cuda::metadata
