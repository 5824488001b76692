#include "engine/drafts/predicted_text.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "heap_count.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using Tokens = std::vector<int32_t>;

Tokens range(int32_t begin, int32_t end) {
  Tokens tokens(static_cast<size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}
Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Tokens part(const Tokens& tokens, size_t begin, size_t end) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
          tokens.begin() + static_cast<std::ptrdiff_t>(end)};
}
Tokens proposed(const PredictedText& predicted, size_t max_drafts) {
  const auto drafts = predicted.propose(max_drafts);
  return {drafts.begin(), drafts.end()};
}

/// What an answer has cost.
struct Answered {
  size_t num_steps = 0, num_failed = 0;  // steps, drafts that were not accepted
};

/// An engine that drafts up to eight tokens a step.
Answered answer(const Tokens& prediction, const Tokens& text) {
  PredictedText predicted(prediction);
  Answered cost;
  for (size_t at = 0; at < text.size(); ++cost.num_steps) {
    const auto drafts = predicted.propose(8);
    size_t num_accepted = 0;
    while (num_accepted < drafts.size() && at + num_accepted < text.size() &&
           drafts[num_accepted] == text[at + num_accepted]) {
      ++num_accepted;
    }
    cost.num_failed += drafts.size() - num_accepted;
    const size_t end = std::min(at + num_accepted + 1, text.size());
    predicted.append(std::span(text).subspan(at, end - at));
    at = end;
  }
  return cost;
}

TEST(PredictedText, IsWhatComesNextFromItsBeginningOn) {
  PredictedText predicted({10, 11, 12, 13, 14});
  EXPECT_EQ(proposed(predicted, 3), (Tokens{10, 11, 12}));
  predicted.append(10);
  EXPECT_EQ(proposed(predicted, 3), (Tokens{11, 12, 13}));
  predicted.append(Tokens{11, 12, 13});
  EXPECT_EQ(proposed(predicted, 3), (Tokens{14}));
  predicted.append(14);
  EXPECT_EQ(proposed(predicted, 3), Tokens{});
  EXPECT_EQ(predicted.place(), 5U);
  predicted.append(15);
  EXPECT_EQ(predicted.place(), std::nullopt);
  EXPECT_EQ(proposed(predicted, 3), Tokens{});
}

TEST(PredictedText, FindsItsPlaceAgainAfterTwoTokens) {
  PredictedText predicted({1, 2, 3, 4, 5, 6, 7, 8});
  predicted.append(Tokens{1, 2, 90});  // for 3
  EXPECT_EQ(proposed(predicted, 2), Tokens{});
  predicted.append(4);
  EXPECT_EQ(proposed(predicted, 2), Tokens{});
  predicted.append(5);
  EXPECT_EQ(proposed(predicted, 2), (Tokens{6, 7}));
}

TEST(PredictedText, CostsFewTokensForEachEdit) {
  const Tokens text = range(100, 300);
  const Answered same = answer(text, text);
  EXPECT_EQ(same.num_steps, 23U) << "nine tokens a step";
  EXPECT_EQ(same.num_failed, 0U);
  const Tokens begin = part(text, 0, 95), end = part(text, 95, 200);
  struct Edit {
    const char* name;
    Tokens text;
    size_t num_new;  // tokens that are not in the prediction
  };
  const std::vector<Edit> edits = {
      {"inserted", begin + Tokens{1, 2, 3} + end, 3},
      {"deleted", begin + part(text, 100, 200), 0},
      {"much deleted", begin + part(text, 180, 200), 0},
      {"replaced", begin + Tokens{1} + part(text, 96, 200), 1},
      {"much replaced", begin + range(1, 40) + part(text, 180, 200), 39},
      {"begins otherwise", Tokens{1, 2, 3, 4} + text, 4},
      {"begins later", part(text, 90, 200), 0},
      {"repeats from its beginning", text + text, 0},
      {"goes on", text + Tokens{1, 2, 3}, 3},
      {"moved", part(text, 100, 200) + part(text, 0, 100), 0},
  };
  for (const Edit& edit : edits) {
    const Answered cost = answer(text, edit.text);
    EXPECT_LE(cost.num_steps, edit.text.size() / 9 + edit.num_new + 8) << edit.name;
    EXPECT_LE(cost.num_failed, 16U) << edit.name;
  }
}

TEST(PredictedText, PrefersTheNearestPlaceAfterTheOldOne) {
  // Tokens 7, 8 stand three times, 1, 2, 3, 4 twice.
  const Tokens prediction = {7, 8, 50, 51, 52, 53, 54, 7, 8, 60, 61, 7, 8, 70, 71};
  PredictedText predicted(prediction);
  predicted.append(Tokens{7, 8, 50, 51, 52, 99, 7, 8});
  EXPECT_EQ(proposed(predicted, 1), Tokens{60});

  const Tokens far = Tokens{1, 2, 3, 4, 30} + range(1000, 1300) + Tokens{1, 2, 3, 4, 31} +
                     range(2000, 2300) + Tokens{1, 2, 3, 4, 32};
  PredictedText from_the_middle(far);
  from_the_middle.append(part(far, 0, 100) + Tokens{99, 1, 2, 3, 4});
  EXPECT_EQ(proposed(from_the_middle, 1), Tokens{31});
  PredictedText from_the_end(far);
  from_the_end.append(part(far, 0, 615) + Tokens{99, 1, 2, 3, 4});
  EXPECT_EQ(proposed(from_the_end, 1), Tokens{32}) << "the nearest before it";
}

TEST(PredictedText, APlaceThatWasWrongDoesNotMoveTheOldOne) {
  // After 99 the tokens 7, 8 lead to a place that is wrong; then 3, 4 are found before that.
  const Tokens prediction = Tokens{1, 2, 3, 4, 5, 6} + range(20, 40) + Tokens{7, 8, 9, 3, 4, 77};
  PredictedText predicted(prediction);
  predicted.append(Tokens{1, 99, 7, 8});
  EXPECT_EQ(proposed(predicted, 1), Tokens{9});
  predicted.append(Tokens{3, 4});
  EXPECT_EQ(proposed(predicted, 2), (Tokens{5, 6}));
}

TEST(PredictedText, IsTheSameFromTokensAndFromPieces) {
  for (int round = 0; round < testing::small_or(30, 300); ++round) {
    Tokens prediction(static_cast<size_t>(testing::random_int(0, 60)));
    for (int32_t& token : prediction) token = static_cast<int32_t>(testing::random_int(0, 5));
    PredictedText one(prediction), pieces(prediction);
    Tokens text;
    for (int i = 0; i < 20; ++i) {
      Tokens piece(static_cast<size_t>(testing::random_int(0, 5)));
      for (int32_t& token : piece) token = static_cast<int32_t>(testing::random_int(0, 5));
      for (const int32_t token : piece) one.append(token);
      pieces.append(piece);
      text = text + piece;
      ASSERT_EQ(one.place(), pieces.place());
      if (!one.place()) continue;
      // The last tokens of the answer are those before the place, two of them at least.
      ASSERT_LE(*one.place(), prediction.size());
      const size_t num_same = std::min<size_t>(2, text.size());
      ASSERT_GE(*one.place(), num_same);
      ASSERT_EQ(part(prediction, *one.place() - num_same, *one.place()),
                part(text, text.size() - num_same, text.size()));
    }
  }
}

TEST(PredictedText, TakesHostileTexts) {
  PredictedText empty({});
  EXPECT_EQ(proposed(empty, 4), Tokens{});
  empty.append(Tokens{1, 2, 3, 4, 5});
  EXPECT_EQ(proposed(empty, 4), Tokens{});
  PredictedText one({0});
  one.append(Tokens{5, 6, 7, 8, 0});
  EXPECT_EQ(proposed(one, 4), Tokens{});
  const int32_t high = std::numeric_limits<int32_t>::max();
  PredictedText extreme({0, high, 0, high, high, 0, 0});
  extreme.append(Tokens{5, 0, high, high});
  EXPECT_EQ(proposed(extreme, 2), (Tokens{0, 0}));

  const auto length = static_cast<size_t>(testing::small_or(5000, 100000));
  PredictedText repeated(Tokens(length, 7));
  EXPECT_LE(repeated.num_bytes(), 20 * length);
  const int64_t before = testing::num_heap_allocations();
  for (size_t i = 0; i < length; ++i) repeated.append(i % 6 == 5 ? 8 : 7);
  EXPECT_EQ(testing::num_heap_allocations(), before);
}

}  // namespace
}  // namespace heddle
