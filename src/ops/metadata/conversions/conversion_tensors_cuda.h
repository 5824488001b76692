#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/index_cuda.h"

#include "ops/metadata/indices_cuda.h"

namespace heddle::cuda::metadata {

/// The sum of integers, which wraps.
template <class Int>
[[nodiscard]] __device__ Int wrapped_sum(Int a, std::type_identity_t<Int> b) {
  using Word = std::make_unsigned_t<Int>;
  return static_cast<Int>(static_cast<Word>(a) + static_cast<Word>(b));
}
template <class Int>
[[nodiscard]] __device__ Int wrapped_difference(Int a, std::type_identity_t<Int> b) {
  using Word = std::make_unsigned_t<Int>;
  return static_cast<Int>(static_cast<Word>(a) - static_cast<Word>(b));
}

/// How a kernel loads, stores and computes with the tensors of a call. kI32: contiguous i32 alone;
/// kMixed: contiguous, any of them i64; kStrided: any strides, either type.
///
///   Place      where an element lies: 32 bits where one window holds all rows, or else 64. A
///              place may be a sum that has wrapped where the metadata is invalid: places before a
///              tensor are places after it, seen as unsigned.
///   Number     an element
///   Value      an element whose load may be in flight: nothing is computed of it before number(),
///              length() or place()
template <IndexLayout kLayout>
struct ConversionTensors {
  static constexpr bool kHasWindows = kLayout == IndexLayout::kStrided;
  static constexpr IndexLayout kStored = kHasWindows ? kLayout : IndexLayout::kMixed;
  using Input = IndexVector<const std::byte, kStored>;
  using Output = IndexVector<std::byte, kStored>;
  using Place = std::conditional_t<kHasWindows, int64_t, int32_t>;
  using Number = int64_t;
  using Value = LoadedIndex;  // its words are loaded one by one: a load of 8 bytes would have to
                              // wait for one of 4 into the same register
  /// An element of a table that begins with `vector`; stride: of rows, in bytes.
  struct Column {
    int64_t row_bytes, column;
  };

  static __device__ Number number(const Value& x) {
    const auto sign = static_cast<uint32_t>(static_cast<int32_t>(x.low) >> 31);
    return static_cast<int64_t>(uint64_t{x.is_int64 ? x.high : sign} << 32 | x.low);
  }
  /// A number that others are added to.
  static __device__ Number length(const Value& x) {
    return kHasWindows ? bounded(number(x)) : number(x);
  }
  /// What lies outside of 32 bits lies outside of all tensors that have one window.
  static __device__ Place place(Number x) {
    if constexpr (kHasWindows) {
      return bounded(x);
    } else {
      const auto low = static_cast<int32_t>(x), high = static_cast<int32_t>(x >> 32);
      return high == low >> 31 ? low : high >> 31 ^ 0x7fffffff;
    }
  }
  static __device__ Place place(const Value& x) {
    if constexpr (kHasWindows) {
      return bounded(number(x));
    } else {
      const auto low = static_cast<int32_t>(x.low), high = static_cast<int32_t>(x.high);
      return x.is_int64 && high != low >> 31 ? high >> 31 ^ 0x7fffffff : low;
    }
  }
  static __device__ auto column(Place row, Place row_stride, Place column) {
    if constexpr (kHasWindows) {
      return Column{row * row_stride, column};
    } else {
      return int64_t{row} * row_stride + column;
    }
  }

  /// The element; zero, without a read, where in_range is false.
  template <class At>
  static __device__ Value load_if(const Input& a, At at, bool in_range) {
    const uint32_t wide = int64_bit(a);
    return load({0, 0, wide != 0}, address(a, at, wide), in_range, wide);
  }
  /// The element, or `other` where in_range is false.
  template <class At>
  static __device__ Value load_or(const Input& a, At at, bool in_range, Number other,
                                  const Input& /*readable*/) {
    const uint32_t wide = int64_bit(a);
    return load(
        {static_cast<uint32_t>(other), static_cast<uint32_t>(other >> 32), wide != 0 || !in_range},
        address(a, at, wide), in_range, wide);
  }
  template <class At>
  static __device__ void store(const Output& a, At at, Number x) {
    const uint32_t wide = int64_bit(a);
    asm volatile(
        "{\n"
        "  .reg .pred wide;\n"
        "  setp.ne.u32 wide, %3, 0;\n"
        "  @!wide st.global.b32 [%0], %1;\n"
        "  @wide st.global.v2.b32 [%0], {%1, %2};\n"
        "}" ::"l"(address(a, at, wide)),
        "r"(static_cast<uint32_t>(x)), "r"(static_cast<uint32_t>(x >> 32)), "r"(wide)
        : "memory");
  }

 private:
  /// 1 for i64, else 0: so the compiler tests one word of the vector alone.
  template <class Vector>
  static __device__ uint32_t int64_bit(const Vector& a) {
    uint32_t wide;
    asm("mov.b32 %0, %1;" : "=r"(wide) : "r"(static_cast<uint32_t>(a.is_int64())));
    return wide;
  }
  template <class Vector, class At>
  static __device__ auto* address(const Vector& a, At at, uint32_t wide) {
    if constexpr (std::is_same_v<At, Column>) {
      return a.address(at.column) + at.row_bytes;
    } else if constexpr (kHasWindows) {
      return a.address(at);
    } else if constexpr (sizeof(At) == 8) {
      return a.address(0) + at * (4 + 4 * wide);
    } else {  // of an element that exists, or that is not used: one multiplication
      return a.address(0) + uint64_t{static_cast<uint32_t>(at)} * (4 + 4 * wide);
    }
  }
  static __device__ Value load(Value x, const std::byte* at, bool in_range, uint32_t wide) {
    asm volatile(
        "{\n"
        "  .reg .pred there, wide;\n"
        "  setp.ne.u32 there, %3, 0;\n"
        "  setp.ne.and.u32 wide, %4, 0, there;\n"
        "  @there ld.global.b32 %0, [%2];\n"
        "  @wide ld.global.b32 %1, [%2 + 4];\n"
        "}"
        : "+r"(x.low), "+r"(x.high)
        : "l"(at), "r"(static_cast<uint32_t>(in_range)), "r"(wide));
    return x;
  }
};

template <>
struct ConversionTensors<IndexLayout::kI32> {
  static constexpr bool kHasWindows = false;
  static constexpr IndexLayout kStored = IndexLayout::kMixed;
  using Input = ConstContiguousIndices;
  using Output = ContiguousIndices;
  using Place = int32_t;
  using Number = int32_t;
  using Value = int32_t;

  static __device__ Number number(Value x) { return x; }
  static __device__ Number length(Value x) { return x; }
  static __device__ Place place(Number x) { return x; }
  static __device__ int64_t column(Place row, Place row_stride, Place column) {
    return int64_t{row} * row_stride + column;
  }
  template <class Int>
  static __device__ Value load_if(const Input& a, Int i, bool in_range) {
    return static_cast<int32_t>(load_word_if(a.as<IndexLayout::kI32>().address(i), in_range));
  }
  /// Where in_range is false, what `readable` begins with is read: no branch, so that several loads
  /// are issued one after the other.
  template <class Int>
  static __device__ Value load_or(const Input& a, Int i, bool in_range, Number other,
                                  const Input& readable) {
    const std::byte* const at = a.as<IndexLayout::kI32>().address(i);
    const std::byte* const first = readable.as<IndexLayout::kI32>().address(0);
    const Number value = *reinterpret_cast<const int32_t*>(in_range ? at : first);
    return in_range ? value : other;
  }
  template <class Int>
  static __device__ void store(const Output& a, Int i, Number x) {
    *reinterpret_cast<int32_t*>(a.as<IndexLayout::kI32>().address(i)) = x;
  }
};

}  // namespace heddle::cuda::metadata
