#include "heddle/core/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

/// The value of a half by its definition.
double value_of(half h) {
  const int exponent = (h.bits >> 10) & 31, fraction = h.bits & 1023;
  const double sign = (h.bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, EveryValueWidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const half h{static_cast<uint16_t>(bits)};
    const float wide = to_float(h);
    if (std::isnan(value_of(h))) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(to_float(from_float<half>(wide))));
    } else {
      ASSERT_EQ(static_cast<double>(wide), value_of(h)) << bits;
      ASSERT_EQ(from_float<half>(wide).bits, h.bits);
    }
  }
}

/// Rounding to nearest, ties to even, by looking at both neighbours.
template <class T>
void expect_nearest(float x) {
  const T rounded = from_float<T>(x);
  const double error = std::abs(double{to_float(rounded)} - double{x});
  for (const int step : {-1, 1}) {
    const T neighbour{static_cast<uint16_t>(rounded.bits + step)};
    if ((neighbour.bits & 0x8000) != (rounded.bits & 0x8000)) continue;
    if (!std::isfinite(to_float(neighbour))) continue;
    const double other = std::abs(double{to_float(neighbour)} - double{x});
    ASSERT_TRUE(error < other || (error == other && (rounded.bits & 1) == 0)) << x;
  }
}

TEST(Half, RoundsToNearestEven) {
  for (int i = 0; i < 100000; ++i) {
    const float x = std::ldexp(1.0f + 1e-7f * static_cast<float>(testing::random_int(0, 9999999)),
                               static_cast<int>(testing::random_int(-26, 14)));
    expect_nearest<half>(x);
    expect_nearest<half>(-x);
    expect_nearest<bfloat16>(x);
  }
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {  // every tie between two neighbours
    expect_nearest<half>((to_float(half{bits}) + to_float(half{static_cast<uint16_t>(bits + 1)})) /
                         2);
  }
  EXPECT_EQ(from_float<half>(65519.0f).bits, 0x7bff);
  EXPECT_EQ(from_float<half>(65520.0f).bits, 0x7c00);
}

TEST(Bfloat16, NanStaysNanAndOverflowIsInfinity) {
  EXPECT_TRUE(std::isnan(to_float(from_float<bfloat16>(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(from_float<bfloat16>(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace heddle
