#include "cuda/divide.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle::cuda {
namespace {

constexpr int64_t kMax = std::numeric_limits<int32_t>::max();

/// Holds divide(n, Divisor(d)) against the operator for n from 0 to `limit`: at both ends, and on
/// both sides of multiples of d, where a quotient that errs shows first.
template <class Divisor>
void expect_quotients(int64_t d, int64_t limit) {
  const Divisor divisor(static_cast<uint32_t>(d));
  const auto expect = [&](int64_t n) {
    if (n < 0 || n > limit) return;
    EXPECT_EQ(divide(static_cast<int>(n), divisor), n / d) << n << " / " << d;
  };
  expect(0);
  expect(limit);
  for (int i = 0; i < 100; ++i) {
    const int64_t multiple = testing::random_int(0, limit / d) * d;
    for (const int64_t n : {multiple - 1, multiple, multiple + 1}) expect(n);
  }
}

/// Small divisors, powers of two and their neighbours, and any.
template <class Expect>
void for_divisors(const Expect& expect) {
  for (int64_t d = 1; d <= 300; ++d) expect(d);
  for (int s = 9; s <= 30; ++s) {
    for (const int64_t d : {(int64_t{1} << s) - 1, int64_t{1} << s, (int64_t{1} << s) + 1})
      expect(d);
  }
  for (int i = 0; i < 300; ++i) expect(testing::random_int(1, kMax));
  expect(kMax);
}

TEST(Divide, FastDivisorIsRightForAllNumbers) {
  for_divisors([](int64_t d) { expect_quotients<FastDivisor>(d, kMax); });
}

TEST(Divide, ReciprocalIsRightWhereTheProductFits) {
  constexpr int64_t kProducts = (int64_t{1} << 32) - 1;
  for_divisors([](int64_t d) { expect_quotients<Reciprocal>(d, std::min(kMax, kProducts / d)); });
}

TEST(Divide, WithoutADivisorDividesByOne) {
  EXPECT_EQ(divide(12345, FastDivisor()), 12345);
  EXPECT_EQ(divide(12345, Reciprocal()), 12345);
}

TEST(Divide, NonnegativeNumbersOfBothWidths) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_EQ(divide_nonnegative(int64_t{4294967295}, int64_t{2}), 2147483647);
  EXPECT_EQ(divide_nonnegative(kHuge + 5, int64_t{3}), (kHuge + 5) / 3);
  EXPECT_EQ(divide_nonnegative(int64_t{5}, kHuge), 0);
  EXPECT_EQ(divide_nonnegative(int32_t{2147483647}, int32_t{16}), 134217727);
}

}  // namespace
}  // namespace heddle::cuda
