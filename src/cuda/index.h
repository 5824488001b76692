#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "heddle/core/tensor_view.h"

namespace heddle::cuda {

// Tensors of i32 or i64 as kernels take them. A launch carries its parameters along, and each 64
// bytes of them cost a kernel 0.1 us; so a vector is one word, or two where it has gaps:
//
//   address   of element 0
//   step      bytes from an element to the next, of IndexLayout::kStrided alone
//
// Addresses and steps are multiples of 4, so a lowest bit is free to say that elements are i64:
// that of the step where there is one, since it is the same for all rows and for all threads, else
// that of the address.
//
// index_cuda.h has the loads and stores that a kernel chooses when it counts instructions.

/// What a kernel knows of its index tensors when it is compiled: neighbouring i32, neighbouring
/// i64, neighbouring elements of either type, any strides and either type.
enum class IndexLayout { kI32, kI64, kMixed, kStrided };

/// An index as its load leaves it: nothing is computed of it before value(), so a thread can have
/// several on their way.
struct LoadedIndex {
  uint32_t low = 0, high = 0;
  bool is_int64 = false;

  [[nodiscard]] static constexpr LoadedIndex of(int64_t value) {
    return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32), true};
  }
  [[nodiscard]] constexpr int64_t value() const {
    return is_int64 ? static_cast<int64_t>(uint64_t{high} << 32 | low) : static_cast<int32_t>(low);
  }
  /// -limit <= value() < limit, a power of two below 2^31. Then its low word is the value.
  [[nodiscard]] constexpr bool is_within(int64_t limit) const {
    const auto half = static_cast<uint32_t>(limit);
    const uint32_t sign = static_cast<uint32_t>(static_cast<int32_t>(low) >> 31);
    return low + half < 2 * half && (!is_int64 || high == sign);
  }
};

/// The step, which a vector has only where elements are not neighbours.
template <IndexLayout kLayout>
struct IndexStep {
  IndexStep() = default;
  constexpr IndexStep(int64_t /*bytes*/, bool /*is_int64*/) {}
};
template <>
struct IndexStep<IndexLayout::kStrided> {
  int64_t tagged_step = 0;  // bytes, plus 1 for i64

  IndexStep() = default;
  constexpr IndexStep(int64_t bytes, bool is_int64) : tagged_step(bytes | int64_t{is_int64}) {}
};

/// A vector of i32 or i64, read and written as i64. Byte is `std::byte`, or `const std::byte` for
/// one that is only read. One made of nothing is absent.
template <class Byte, IndexLayout kLayout = IndexLayout::kStrided>
class IndexVector : private IndexStep<kLayout> {
 public:
  IndexVector() = default;
  /// step_bytes is left out where the layout knows it. Without data: absent.
  IndexVector(Byte* data, int64_t step_bytes, bool is_int64)
      : IndexStep<kLayout>(step_bytes, is_int64),
        data_(data == nullptr ? nullptr : data + tag(is_int64)) {}
  /// Of what the CPU's kernels hold (cpu/index_array.h).
  template <class Array>
    requires requires(const Array& a) { a.step_bytes(); }
  explicit IndexVector(const Array& a) : IndexVector(a.data(), a.step_bytes(), a.is_int64()) {}
  /// Of a tensor with one axis or none.
  explicit IndexVector(const BasicTensorView<Byte>& t)
      : IndexVector(t.raw(),
                    t.rank() == 1 ? t.stride(0) * static_cast<int64_t>(size_of(t.dtype())) : 0,
                    t.dtype() == DType::kInt64) {}

  [[nodiscard]] constexpr bool is_given() const { return data_ != nullptr; }
  [[nodiscard]] constexpr bool is_int64() const {
    if constexpr (kLayout == IndexLayout::kI32) return false;
    if constexpr (kLayout == IndexLayout::kI64) return true;
    if constexpr (kLayout == IndexLayout::kMixed)
      return (reinterpret_cast<uintptr_t>(data_) & 1) != 0;
    if constexpr (kLayout == IndexLayout::kStrided) return (this->tagged_step & 1) != 0;
  }
  /// Where element i lies.
  template <class Int>
  [[nodiscard]] constexpr Byte* address(Int i) const {
    const auto n = static_cast<int64_t>(i);
    if constexpr (kLayout == IndexLayout::kI32) return data_ + n * 4;
    if constexpr (kLayout == IndexLayout::kI64) return data_ + n * 8 - 1;
    if constexpr (kLayout == IndexLayout::kMixed) {
      const auto bits = reinterpret_cast<uintptr_t>(data_);
      return reinterpret_cast<Byte*>((bits & ~uintptr_t{1}) + (n << (2 + (bits & 1))));
    }
    if constexpr (kLayout == IndexLayout::kStrided) {
      return data_ + n * (this->tagged_step & ~int64_t{1});
    }
  }

  /// Element i. Loads words rather than choosing between loads of 4 and 8 bytes: they are joined
  /// where the value is needed, so that no load waits for the one before.
  template <class Int>
  constexpr int64_t operator[](Int i) const {
    const auto* words = reinterpret_cast<const uint32_t*>(address(i));
    const uint32_t low = words[0], high = is_int64() ? words[1] : 0;
    return LoadedIndex{low, high, is_int64()}.value();
  }
  /// The same by a choice between loads of 4 and 8 bytes: fewer instructions, for kernels that copy
  /// much and read few indices.
  template <class Int>
  constexpr int64_t at(Int i) const {
    return is_int64() ? *reinterpret_cast<const int64_t*>(address(i))
                      : int64_t{*reinterpret_cast<const int32_t*>(address(i))};
  }
  /// The value of an element that was loaded before. As x.value(), but the type is asked of the
  /// vector, so that a kernel which keeps x for long has one register less to keep.
  [[nodiscard]] constexpr int64_t value_of(LoadedIndex x) const {
    x.is_int64 = is_int64();
    return x.value();
  }
  /// Writes element i of a vector that is given.
  template <class Int>
  constexpr void set_given(Int i, int64_t value) const requires(!std::is_const_v<Byte>) {
    if (is_int64()) {
      *reinterpret_cast<int64_t*>(address(i)) = value;
    } else {
      *reinterpret_cast<int32_t*>(address(i)) = static_cast<int32_t>(value);
    }
  }
  /// Where the vector is absent the value is dropped.
  template <class Int>
  constexpr void set(Int i, int64_t value) const requires(!std::is_const_v<Byte>) {
    if (is_given()) set_given(i, value);
  }

  /// The vector that begins with element i of this one.
  template <class Int>
  [[nodiscard]] constexpr IndexVector from(Int i) const {
    return {address(i) + tag(is_int64()), *this};
  }
  /// The vector that begins `bytes` bytes after this one; absent where this one is.
  [[nodiscard]] constexpr IndexVector after(int64_t bytes) const {
    return {data_ == nullptr ? nullptr : data_ + bytes, *this};
  }
  /// `after` of a vector that is given.
  [[nodiscard]] constexpr IndexVector after_given(int64_t bytes) const {
    return {data_ + bytes, *this};
  }
  /// The same neighbouring elements, of which a kernel knows more.
  template <IndexLayout kKnown>
    requires(kLayout == IndexLayout::kMixed && kKnown != IndexLayout::kStrided)
  [[nodiscard]] constexpr IndexVector<Byte, kKnown> as() const {
    return {data_, IndexStep<kKnown>()};
  }

 private:
  template <class, IndexLayout>
  friend class IndexVector;

  constexpr IndexVector(Byte* tagged, const IndexStep<kLayout>& step)
      : IndexStep<kLayout>(step), data_(tagged) {}
  [[nodiscard]] static constexpr int tag(bool is_int64) {
    return kLayout != IndexLayout::kStrided && is_int64 ? 1 : 0;
  }

  Byte* data_ = nullptr;  // plus 1 for i64, but for kStrided
};

/// Rows of such.
template <class Byte, IndexLayout kLayout = IndexLayout::kStrided>
class IndexRows {
 public:
  /// Rows without gaps have few bytes more than elements, and steps that 32 bits hold.
  using Step = std::conditional_t<kLayout == IndexLayout::kStrided, int64_t, uint32_t>;

  IndexRows() = default;
  IndexRows(Byte* data, int64_t row_step_bytes, int64_t column_step_bytes, bool is_int64)
      : first_(data, column_step_bytes, is_int64), row_step_(static_cast<Step>(row_step_bytes)) {}
  template <class Matrix>
    requires requires(const Matrix& m) { m.row_step_bytes(); }
  explicit IndexRows(const Matrix& m)
      : IndexRows(m.data(), m.row_step_bytes(), m.column_step_bytes(), m.is_int64()) {}

  [[nodiscard]] constexpr bool is_given() const { return first_.is_given(); }
  /// Of rows that are given.
  template <class Int>
  [[nodiscard]] constexpr IndexVector<Byte, kLayout> row_given(Int i) const {
    return first_.after_given(static_cast<int64_t>(i) * static_cast<int64_t>(row_step_));
  }
  /// Absent where the rows are.
  template <class Int>
  [[nodiscard]] constexpr IndexVector<Byte, kLayout> row(Int i) const {
    return first_.after(static_cast<int64_t>(i) * static_cast<int64_t>(row_step_));
  }

 private:
  IndexVector<Byte, kLayout> first_;  // row 0
  Step row_step_ = 0;                 // bytes
};

using ConstIndexVector = IndexVector<const std::byte>;
using MutableIndexVector = IndexVector<std::byte>;
using ConstIndexRows = IndexRows<const std::byte>;
using MutableIndexRows = IndexRows<std::byte>;

// Neighbouring elements of either type.
using ConstContiguousIndices = IndexVector<const std::byte, IndexLayout::kMixed>;
using ContiguousIndices = IndexVector<std::byte, IndexLayout::kMixed>;
using ContiguousIndexRows = IndexRows<std::byte, IndexLayout::kMixed>;

/// Packs the CPU's arrays as neighbouring elements, and sees what all of a call have in common.
class IndexPacker {
 public:
  template <class Vector>
    requires requires(const Vector& v) { v.step_bytes(); }
  [[nodiscard]] auto operator()(const Vector& v) {
    note(v.data() == nullptr || v.step_bytes() == (v.is_int64() ? 8 : 4));
    return element(v);
  }
  template <class Matrix>
    requires requires(const Matrix& m) { m.row_step_bytes(); }
  [[nodiscard]] auto operator()(const Matrix& m) {
    constexpr int64_t kMaxRowBytes = 0xffffffff;
    note(m.data() == nullptr || (m.column_step_bytes() == (m.is_int64() ? 8 : 4) &&
                                 m.row_step_bytes() >= 0 && m.row_step_bytes() <= kMaxRowBytes));
    note_type(m.data() != nullptr, m.is_int64());
    return IndexRows<std::remove_pointer_t<decltype(m.data())>, IndexLayout::kMixed>(m);
  }
  /// Of a vector of which element 0 alone is used.
  template <class Vector>
  [[nodiscard]] auto element(const Vector& v) {
    note_type(v.data() != nullptr, v.is_int64());
    return IndexVector<std::remove_pointer_t<decltype(v.data())>, IndexLayout::kMixed>(v);
  }

  /// kStrided: what was packed cannot be used.
  [[nodiscard]] IndexLayout layout() const {
    return !are_neighbours_ ? IndexLayout::kStrided
           : !has_int64_    ? IndexLayout::kI32
           : !has_int32_    ? IndexLayout::kI64
                            : IndexLayout::kMixed;
  }

 private:
  void note(bool are_neighbours) { are_neighbours_ &= are_neighbours; }
  void note_type(bool is_given, bool is_int64) {
    has_int64_ |= is_given && is_int64;
    has_int32_ |= is_given && !is_int64;
  }

  bool are_neighbours_ = true, has_int64_ = false, has_int32_ = false;
};

/// launch(layout) with the constant that a kernel wants; not of kStrided.
template <class Launch>
void dispatch_layout(IndexLayout layout, const Launch& launch) {
  switch (layout) {
    case IndexLayout::kI32: return launch.template operator()<IndexLayout::kI32>();
    case IndexLayout::kI64: return launch.template operator()<IndexLayout::kI64>();
    case IndexLayout::kMixed: return launch.template operator()<IndexLayout::kMixed>();
    case IndexLayout::kStrided: return;
  }
}

}  // namespace heddle::cuda
