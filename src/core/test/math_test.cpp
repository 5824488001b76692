#include "core/math.h"

#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Math, CeilDivRoundsUp) {
  for (int64_t b = 1; b <= 33; ++b) {
    for (int64_t a = 0; a <= 100; ++a) {
      const int64_t q = ceil_div(a, b);
      EXPECT_GE(q * b, a) << a << " / " << b;
      EXPECT_LT(q * b, a + b) << a << " / " << b;
    }
  }
}

TEST(Math, RoundUpGivesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 16), 0);
  EXPECT_EQ(round_up(1, 16), 16);
  EXPECT_EQ(round_up(16, 16), 16);
  EXPECT_EQ(round_up(17, 16), 32);
  EXPECT_EQ(round_up(17, 1), 17);
}

TEST(Math, HasTheTypeOfTheOperators) {
  static_assert(std::is_same_v<decltype(ceil_div(1, 2)), int>);
  static_assert(std::is_same_v<decltype(ceil_div(int64_t{1}, 2)), int64_t>);
  static_assert(std::is_same_v<decltype(round_up(size_t{1}, size_t{2})), size_t>);
  constexpr int64_t kLarge = int64_t{1} << 40;
  EXPECT_EQ(ceil_div(kLarge + 1, 1 << 20), (int64_t{1} << 20) + 1);
}

}  // namespace
}  // namespace heddle
