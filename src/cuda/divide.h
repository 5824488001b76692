#pragma once

#include <cstdint>

namespace heddle::cuda {

// Division in kernels. A GPU has no instruction for it: the operator takes about 20 for 32 bits and
// 100 for 64. Which of these to take:
//
//   divisor known to the host, any size      divide(n, FastDivisor)      2 words, 2 instructions
//   the same, n * d below 2^32               divide(n, Reciprocal)       1 word, 1 instruction
//   both found by the kernel, small quotient divide_small(n, d)          divide_cuda.h
//   64 bits that are small in practice       divide_nonnegative(n, d)

/// The upper half of a product.
[[nodiscard]] constexpr uint32_t multiply_high(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}

/// Division by d in [1, 2^31): n / d = (n * multiplier >> 32) >> shift for every n in [0, 2^31).
/// With 2^(s-1) < d <= 2^s the multiplier is ceil(2^(31+s) / d) < 2^32, too large by less than 1,
/// so the quotient errs by less than n / 2^(31+s) < 1 / d, which rounding down takes away. Where
/// d = 1 the multiplier does not fit; 0 there stands for n itself.
struct FastDivisor {
  uint32_t multiplier = 0, shift = 0;

  FastDivisor() = default;  // divides by 1
  constexpr explicit FastDivisor(uint32_t d) {
    if (d == 1) return;
    uint32_t s = 1;
    while ((uint64_t{1} << s) < d) ++s;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + s)) + d - 1) / d);
    shift = s - 1;
  }
};
[[nodiscard]] constexpr int divide(int n, FastDivisor d) {
  const uint32_t quotient = multiply_high(static_cast<uint32_t>(n), d.multiplier) >> d.shift;
  return d.multiplier == 0 ? n : static_cast<int>(quotient);
}

/// Division by d in [1, 2^32): n / d = n * multiplier >> 32 where n * d < 2^32. The multiplier is
/// ceil(2^32 / d), which for d = 1 does not fit; 0 there stands for n itself.
struct Reciprocal {
  uint32_t multiplier;

  Reciprocal() = default;  // for shared memory; Reciprocal{} divides by 1
  constexpr explicit Reciprocal(uint32_t d) : multiplier(0xffffffffu / d + 1) {}
};
[[nodiscard]] constexpr int divide(int n, Reciprocal d) {
  return d.multiplier == 0
             ? n
             : static_cast<int>(multiply_high(static_cast<uint32_t>(n), d.multiplier));
}

/// n / d for n >= 0 and d > 0. Few numbers of a kernel need the division of 64 bits, which takes
/// five times as long as that of 32.
[[nodiscard]] constexpr int64_t divide_nonnegative(int64_t n, int64_t d) {
  if (((n | d) >> 32) == 0) return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
  return n / d;
}
[[nodiscard]] constexpr int32_t divide_nonnegative(int32_t n, int32_t d) {
  return static_cast<int32_t>(static_cast<uint32_t>(n) / static_cast<uint32_t>(d));
}

}  // namespace heddle::cuda
