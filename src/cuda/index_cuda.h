#pragma once

#include <cstdint>

#include "cuda/index.h"
#include "cuda/load_cuda.h"

namespace heddle::cuda {

// Loads and stores of index vectors as one instruction under a predicate each. Written as a choice
// between two sizes they would be branches, and the first load would be waited for before the next
// one is issued.

/// The index at an address; zero, without a read, where in_range is false.
[[nodiscard]] __device__ inline LoadedIndex load_index(const std::byte* at, bool is_int64,
                                                       bool in_range) {
  LoadedIndex x{.is_int64 = is_int64};
  asm volatile(
      "{\n"
      "  .reg .pred low, high;\n"
      "  setp.ne.u32 low, %3, 0;\n"
      "  setp.ne.u32 high, %4, 0;\n"
      "  mov.u32 %0, 0;\n"
      "  mov.u32 %1, 0;\n"
      "  @low ld.global.u32 %0, [%2];\n"
      "  @high ld.global.u32 %1, [%2 + 4];\n"
      "}"
      : "=&r"(x.low), "=&r"(x.high)
      : "l"(at), "r"(static_cast<uint32_t>(in_range)),
        "r"(static_cast<uint32_t>(in_range && is_int64))
      : "memory");
  return x;
}
/// The same of an index that no thread of the kernel writes before, so that the compiler may move
/// the load across stores.
[[nodiscard]] __device__ inline LoadedIndex load_input(const std::byte* at, bool is_int64,
                                                       bool in_range) {
  return {load_word_if(at, in_range), load_word_if(at + 4, in_range && is_int64), is_int64};
}
/// Element i of such; zero where the vector is absent.
template <class Byte, IndexLayout kLayout, class Int>
[[nodiscard]] __device__ LoadedIndex load_input(const IndexVector<Byte, kLayout>& a, Int i,
                                                bool in_range = true) {
  return load_input(a.address(i), a.is_int64(), in_range && a.is_given());
}
/// Element i of a vector that is given. kLoadIf: load_word_if or load_changing_word_if.
template <auto kLoadIf = load_word_if, class Byte, IndexLayout kLayout, class Int>
[[nodiscard]] __device__ LoadedIndex load_given(const IndexVector<Byte, kLayout>& a, Int i) {
  const std::byte* const at = a.address(i);
  return {kLoadIf(at, true), kLoadIf(at + 4, a.is_int64()), a.is_int64()};
}

// For kernels that are compiled for each layout, with vectors that hold any of them.

template <IndexLayout kLayout, class Byte>
[[nodiscard]] __device__ LoadedIndex load_if(bool in_range,
                                             IndexVector<Byte, IndexLayout::kMixed> a, uint32_t i) {
  const auto known = a.template as<kLayout>();
  return load_index(known.address(i), known.is_int64(), in_range);
}
/// Where in_range and the vector is given.
template <IndexLayout kLayout>
__device__ void store_if(bool in_range, IndexVector<std::byte, IndexLayout::kMixed> mixed,
                         uint32_t i, int64_t value) {
  const auto a = mixed.as<kLayout>();
  std::byte* const at = a.address(i);
  const bool stores = in_range && a.is_given(), is_int64 = a.is_int64();
  if constexpr (kLayout != IndexLayout::kI32) {
    asm volatile(
        "{\n"
        "  .reg .pred stores;\n"
        "  setp.ne.u32 stores, %2, 0;\n"
        "  @stores st.global.b64 [%0], %1;\n"
        "}" ::"l"(at),
        "l"(value), "r"(static_cast<uint32_t>(stores && is_int64))
        : "memory");
  }
  if constexpr (kLayout != IndexLayout::kI64) {
    asm volatile(
        "{\n"
        "  .reg .pred stores;\n"
        "  setp.ne.u32 stores, %2, 0;\n"
        "  @stores st.global.b32 [%0], %1;\n"
        "}" ::"l"(at),
        "r"(static_cast<int32_t>(value)), "r"(static_cast<uint32_t>(stores && !is_int64))
        : "memory");
  }
}

/// The lower 32 bits of an index, which is all of an i32.
[[nodiscard]] __device__ inline uint32_t low_word(const std::byte* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}
/// Brings the line of an index into the first cache, where a later load finds it. Nothing waits for
/// it.
__device__ inline void touch(const std::byte* at) {
  [[maybe_unused]] int32_t ignored;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(ignored) : "l"(at));
}

}  // namespace heddle::cuda
