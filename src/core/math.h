#pragma once

#include <concepts>

namespace heddle {

// For the host and for kernels alike: nvcc compiles every constexpr function for both
// (--expt-relaxed-constexpr, cmake/heddle_settings.cmake). Forced inline, so that code which
// Highway compiles once per instruction set may call them, too.

/// a / b rounded up: ceil_div(17, 16) = 2. For a >= 0 and b > 0, where a + b - 1 fits.
template <std::integral A, std::integral B>
[[nodiscard, gnu::always_inline]] constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// The least multiple of `unit` that is not below n: round_up(17, 16) = 32.
template <std::integral A, std::integral B>
[[nodiscard, gnu::always_inline]] constexpr auto round_up(A n, B unit) {
  return ceil_div(n, unit) * unit;
}

}  // namespace heddle
