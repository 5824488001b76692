#include "cpu/philox.h"

#include <gtest/gtest.h>

namespace heddle::cpu {
namespace {

using Counter = std::array<uint32_t, 4>;

/// The known answers that the authors publish with Random123.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawsFromTheUpper53BitsOfTwoWords) {
  EXPECT_EQ(uniform_draw(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) / 0x1p53);
  EXPECT_EQ(uniform_draw(-1, -1) == uniform_draw(-1, 0), false);
  // Both halves of seed and step count.
  for (const int64_t other : {int64_t{1}, int64_t{1} << 32, int64_t{-1}}) {
    EXPECT_NE(uniform_draw(0, other), uniform_draw(0, 0));
    EXPECT_NE(uniform_draw(other, 0), uniform_draw(0, 0));
  }
}

TEST(Philox, PurposeAndRankAreTheUpperWordsOfTheCounter) {
  const auto words = philox4x32_10({7, 1, 2, 5}, {9, 3});
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  const int64_t seed = (int64_t{3} << 32) + 9, step = (int64_t{1} << 32) + 7;
  EXPECT_EQ(uniform_draw(seed, step, Draw::kTarget, 5), static_cast<double>(bits >> 11) / 0x1p53);
  EXPECT_EQ(uniform_draw(seed, step), uniform_draw(seed, step, Draw::kSample, 0));
}

}  // namespace
}  // namespace heddle::cpu
