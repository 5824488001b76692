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

/// The value of an e4m3 by its definition.
double value_of(float8_e4m3 x) {
  const int exponent = (x.bits >> 3) & 15, fraction = x.bits & 7;
  const double sign = (x.bits & 0x80) != 0 ? -1.0 : 1.0;
  if (exponent == 15 && fraction == 7) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

TEST(Float8E4M3, EveryValueWidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const float8_e4m3 x{static_cast<uint8_t>(bits)};
    if (std::isnan(value_of(x))) {
      EXPECT_TRUE(std::isnan(to_float(x)));
      EXPECT_EQ(from_float<float8_e4m3>(to_float(x)).bits, 0x7f);
    } else {
      ASSERT_EQ(double{to_float(x)}, value_of(x)) << bits;
      ASSERT_EQ(from_float<float8_e4m3>(to_float(x)).bits, bits);
    }
  }
}

TEST(Float8E4M3, RoundsToNearestEven) {
  for (int bits = 0; bits < 0x7e; ++bits) {  // around every tie between two neighbours
    const int next = bits + 1, even = bits % 2 == 0 ? bits : next;
    const auto value = [](int b) { return value_of(float8_e4m3{static_cast<uint8_t>(b)}); };
    const auto tie = static_cast<float>((value(bits) + value(next)) / 2);
    for (const int sign : {0x00, 0x80}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(from_float<float8_e4m3>(s * std::nextafter(tie, 0.0f)).bits, bits | sign);
      EXPECT_EQ(from_float<float8_e4m3>(s * tie).bits, even | sign);
      EXPECT_EQ(from_float<float8_e4m3>(s * std::nextafter(tie, 500.0f)).bits, next | sign);
    }
  }
}

TEST(Float8E4M3, WhatIsTooLargeIsTheLargest) {
  for (const float x : {448.0f, 464.0f, 465.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(from_float<float8_e4m3>(x).bits, 0x7e);
    EXPECT_EQ(from_float<float8_e4m3>(-x).bits, 0xfe);
  }
}

TEST(Bfloat16, NanStaysNanAndOverflowIsInfinity) {
  EXPECT_TRUE(std::isnan(to_float(from_float<bfloat16>(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(from_float<bfloat16>(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace heddle
