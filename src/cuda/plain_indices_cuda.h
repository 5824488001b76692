#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::cuda {

// Index tensors without gaps, for kernels that spend most of their time on addresses: a pointer each, and one width for all where
// the call has one.

/// Whether all index tensors of a call are i32, all are i64, or some are this and some that.
enum class Widths { kNarrow, kWide, kMixed };

/// A vector; one without data is absent and drops what is stored.
struct PlainIndices {
  uintptr_t tagged = 0;  // address, plus 1 for i64

  [[nodiscard]] __host__ __device__ bool is_there() const { return tagged != 0; }
};

/// Rows of such.
struct PlainIndexRows {
  PlainIndices first;
  uint32_t row_bytes = 0;
};

/// An index as its load leaves it. Nothing is computed of it before value(), so a thread can have several on their way.
struct LoadedIndex {
  uint32_t low = 0, high = 0;
  bool is_wide = false;

  [[nodiscard]] __device__ int64_t value() const {
    return is_wide ? static_cast<int64_t>(uint64_t{high} << 32 | low) : static_cast<int32_t>(low);
  }
  /// -limit <= value() < limit, a power of two below 2^31. Then its low word is the value.
  [[nodiscard]] __device__ bool is_within(int64_t limit) const {
    const auto half = static_cast<uint32_t>(limit);
    const uint32_t sign = static_cast<uint32_t>(static_cast<int32_t>(low) >> 31);
    return low + half < 2 * half && (!is_wide || high == sign);
  }
};

template <Widths kWidths>
[[nodiscard]] __device__ bool is_wide(PlainIndices a) {
  return kWidths == Widths::kMixed ? (a.tagged & 1) != 0 : kWidths == Widths::kWide;
}
template <Widths kWidths>
[[nodiscard]] __device__ uintptr_t address_of(PlainIndices a, uint32_t i) {
  if constexpr (kWidths == Widths::kNarrow) return a.tagged + uint64_t{i} * 4;
  if constexpr (kWidths == Widths::kWide) return a.tagged + uint64_t{i} * 8 - 1;
  return (a.tagged & ~uintptr_t{1}) + (uint64_t{i} << (2 + (a.tagged & 1)));
}

/// The index at an address; zero, without a read, where is_there is false. Predicated words: a choice of loads of two sizes would
/// be waited for before the next load.
[[nodiscard]] __device__ inline LoadedIndex load_index(uintptr_t at, bool is_wide, bool is_there) {
  LoadedIndex x{.is_wide = is_wide};
  asm volatile(
      "{\n"
      "  .reg .pred there, wide;\n"
      "  setp.ne.u32 there, %3, 0;\n"
      "  setp.ne.u32 wide, %4, 0;\n"
      "  mov.u32 %0, 0;\n"
      "  mov.u32 %1, 0;\n"
      "  @there ld.global.u32 %0, [%2];\n"
      "  @wide ld.global.u32 %1, [%2 + 4];\n"
      "}"
      : "=&r"(x.low), "=&r"(x.high)
      : "l"(at), "r"(static_cast<uint32_t>(is_there)),
        "r"(static_cast<uint32_t>(is_there && is_wide))
      : "memory");
  return x;
}
template <Widths kWidths>
[[nodiscard]] __device__ LoadedIndex load_if(bool is_there, PlainIndices a, uint32_t i) {
  return load_index(address_of<kWidths>(a, i), is_wide<kWidths>(a), is_there);
}
template <Widths kWidths>
[[nodiscard]] __device__ PlainIndices row_of(PlainIndexRows rows, uint32_t i) {
  return {rows.first.tagged + uint64_t{i} * rows.row_bytes};
}
/// Where is_there and the vector is. Predicated, like the loads.
template <Widths kWidths>
__device__ void store_if(bool is_there, PlainIndices a, uint32_t i, int64_t value) {
  const uintptr_t at = address_of<kWidths>(a, i);
  const bool stores = is_there && a.is_there(), wide = is_wide<kWidths>(a);
  if constexpr (kWidths != Widths::kNarrow) {
    asm volatile(
        "{\n"
        "  .reg .pred stores;\n"
        "  setp.ne.u32 stores, %2, 0;\n"
        "  @stores st.global.b64 [%0], %1;\n"
        "}" ::"l"(at),
        "l"(value), "r"(static_cast<uint32_t>(stores && wide))
        : "memory");
  }
  if constexpr (kWidths != Widths::kWide) {
    asm volatile(
        "{\n"
        "  .reg .pred stores;\n"
        "  setp.ne.u32 stores, %2, 0;\n"
        "  @stores st.global.b32 [%0], %1;\n"
        "}" ::"l"(at),
        "r"(static_cast<int32_t>(value)), "r"(static_cast<uint32_t>(stores && !wide))
        : "memory");
  }
}

/// Turns the CPU's index arrays (cpu/index_array.h) into plain ones and sees whether all of a call are.
class PlainIndexing {
 public:
  template <class Vector>
    requires requires(const Vector& v) { v.step_bytes(); }
  [[nodiscard]] PlainIndices operator()(const Vector& v) {
    if (v.data() == nullptr) return {};
    is_plain_ &= v.step_bytes() == (v.is_wide() ? 8 : 4);
    return tagged(v.data(), v.is_wide());
  }
  template <class Matrix>
    requires requires(const Matrix& m) { m.row_step_bytes(); }
  [[nodiscard]] PlainIndexRows operator()(const Matrix& m) {
    if (m.data() == nullptr) return {};
    constexpr int64_t kMaxRowBytes = 0xffffffff;
    is_plain_ &= m.column_step_bytes() == (m.is_wide() ? 8 : 4) && m.row_step_bytes() >= 0 &&
                 m.row_step_bytes() <= kMaxRowBytes;
    return {tagged(m.data(), m.is_wide()), static_cast<uint32_t>(m.row_step_bytes())};
  }
  /// Of a vector of which element 0 alone is used.
  template <class Vector>
  [[nodiscard]] PlainIndices element(const Vector& v) {
    return v.data() == nullptr ? PlainIndices{} : tagged(v.data(), v.is_wide());
  }

  [[nodiscard]] bool is_plain() const { return is_plain_; }
  [[nodiscard]] Widths widths() const {
    return !has_wide_ ? Widths::kNarrow : !has_narrow_ ? Widths::kWide : Widths::kMixed;
  }

 private:
  [[nodiscard]] PlainIndices tagged(const std::byte* data, bool is_wide) {
    (is_wide ? has_wide_ : has_narrow_) = true;
    return {reinterpret_cast<uintptr_t>(data) | uintptr_t{is_wide}};
  }

  bool is_plain_ = true, has_wide_ = false, has_narrow_ = false;
};

/// launch(widths) with the constant that the kernel wants.
template <class Launch>
void dispatch_widths(Widths widths, const Launch& launch) {
  switch (widths) {
    case Widths::kNarrow: return launch.template operator()<Widths::kNarrow>();
    case Widths::kWide: return launch.template operator()<Widths::kWide>();
    case Widths::kMixed: return launch.template operator()<Widths::kMixed>();
  }
}

}  // namespace heddle::cuda
