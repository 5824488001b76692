#include "engine/drafts/draft_lengths.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "heap_count.h"
#include "random.h"

namespace heddle {
namespace {

const StepCosts& free_to_16() {  // a step of 16 tokens costs what one of a single token does
  static const StepCosts costs(std::vector<StepCost>{{1, 10}, {16, 10}, {32, 26}});
  return costs;
}

std::vector<int> choose(std::vector<DraftOffer> rows, const StepCosts& costs,
                        int64_t num_other_tokens = 0, int64_t max_drafts = 256) {
  DraftLengths lengths{
      .rows = std::move(rows), .num_other_tokens = num_other_tokens, .max_drafts = max_drafts};
  choose_draft_lengths(lengths, costs);
  return lengths.drafts;
}

/// The formula of the header.
double ratio_of(const std::vector<DraftOffer>& rows, const std::vector<int>& drafts,
                int64_t num_other_tokens, const StepCosts& costs, DraftingCost drafting = {}) {
  double expected = 0;
  int longest = 0;
  int64_t num_tokens = num_other_tokens;
  for (size_t i = 0; i < rows.size(); ++i) {
    double gain = 1;
    expected += gain;
    for (int j = 1; j <= drafts[i]; ++j) {
      if (j > rows[i].num_certain) gain *= rows[i].accept_rate;
      expected += gain;
    }
    num_tokens += 1 + drafts[i];
    if (!rows[i].is_made) longest = std::max(longest, drafts[i]);
  }
  const double making = longest == 0 ? 0 : drafting.begin + longest * drafting.each;
  return expected / (costs.seconds(num_tokens) + making);
}

TEST(DraftLengths, AreAllThatIsOfferedWhereTokensCostNothing) {
  EXPECT_EQ(choose({{.num_offered = 8, .accept_rate = 0.3}, {.num_offered = 3, .accept_rate = 0.9}},
                   free_to_16()),
            (std::vector<int>{8, 3}));
}

/// The likeliest ones are still to be made: they cost more than they gain, others do not.
TEST(DraftLengths, MakingThemCostsTimeOnlyWhereTheyAreNotMade) {
  const auto choose_with = [](DraftingCost drafting) {
    DraftLengths lengths{.rows = {{.num_offered = 8, .accept_rate = 0.9},
                                  {.num_offered = 2, .accept_rate = 0.5, .is_made = true}},
                         .drafting = drafting};
    choose_draft_lengths(lengths, free_to_16());
    EXPECT_GT(lengths.tokens_per_second, 0);
    return lengths.drafts;
  };
  EXPECT_EQ(choose_with({}), (std::vector<int>{8, 2}));
  EXPECT_EQ(choose_with({.each = 0.01}), (std::vector<int>{8, 2}));
  EXPECT_EQ(choose_with({.each = 100}), (std::vector<int>{0, 2}));
  EXPECT_EQ(choose_with({.begin = 100}), (std::vector<int>{0, 2}));
  // 2.75 tokens in 10 s, 3.65 in 12.8, 4.46 in 15.6, 5.19 in 18.4.
  EXPECT_EQ(choose_with({.each = 2.8}), (std::vector<int>{2, 2}));
}

TEST(DraftLengths, AreNoneWhereEachTokenCostsAsMuchAsTheFirst) {
  const StepCosts linear(std::vector<StepCost>{{1, 1}, {2, 2}});
  EXPECT_EQ(choose({{.num_offered = 8, .accept_rate = 0.99}, {.num_offered = 2, .num_certain = 2}},
                   linear),
            (std::vector<int>{0, 0}))
      << "not even those that cannot fail";
}

TEST(DraftLengths, GiveTheBudgetToTheRowsThatAreLikelier) {
  EXPECT_EQ(choose({{.num_offered = 15, .accept_rate = 0.5},
                    {.num_offered = 15, .accept_rate = 0.9},
                    {.num_offered = 15, .num_certain = 2, .accept_rate = 0}},
                   free_to_16(), 0, 8),
            (std::vector<int>{0, 6, 2}));
  EXPECT_EQ(choose({{.num_offered = 4, .accept_rate = 0.5}, {.num_offered = 4, .accept_rate = 0.5}},
                   free_to_16(), 0, 3),
            (std::vector<int>{2, 1}))
      << "of equal ones the first";
}

TEST(DraftLengths, GoOverAStepOfTheCostsWhereItPays) {
  // 8 tokens cost 10, 9 to 64 cost 12: the ninth alone does not pay, eight more do.
  const StepCosts costs(std::vector<StepCost>{{8, 10}, {9, 12}, {64, 12}});
  const std::vector<DraftOffer> rows(7, {.num_offered = 3, .accept_rate = 0.9});
  EXPECT_EQ(choose(rows, costs), std::vector<int>(7, 3));
  EXPECT_EQ(choose(rows, costs, 0, 2), (std::vector<int>{1, 0, 0, 0, 0, 0, 0}))
      << "not where the budget ends right after it";
}

TEST(DraftLengths, CountTheOtherTokensOfTheStep) {
  const StepCosts steep(std::vector<StepCost>{{1, 10}, {16, 10}, {32, 58}});
  const std::vector<DraftOffer> rows(4, {.num_offered = 4, .accept_rate = 0.6});
  EXPECT_EQ(choose(rows, steep, 12), std::vector<int>(4, 0));
  const std::vector<int> some = choose(rows, steep, 6);
  EXPECT_EQ(std::accumulate(some.begin(), some.end(), 0), 6);
}

TEST(DraftLengths, TakeRatesThatAreNoneForTheNearestRate) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(choose({{.num_offered = 3, .accept_rate = nan},
                    {.num_offered = 3, .accept_rate = -1},
                    {.num_offered = 3, .accept_rate = 7},
                    {.num_offered = 3, .num_certain = 1, .accept_rate = nan}},
                   free_to_16()),
            (std::vector<int>{0, 0, 3, 1}));
}

TEST(DraftLengths, AreEmptyWithoutRowsAndZeroWithoutOffersOrBudget) {
  EXPECT_TRUE(choose({}, free_to_16()).empty());
  EXPECT_EQ(choose({{}, {}}, free_to_16()), (std::vector<int>{0, 0}));
  EXPECT_EQ(choose({{.num_offered = 0, .num_certain = 3, .accept_rate = 1}}, free_to_16()),
            std::vector<int>{0});
  EXPECT_EQ(choose({{.num_offered = 5, .accept_rate = 1}}, free_to_16(), 0, 0),
            std::vector<int>{0});
  EXPECT_EQ(choose({{.num_offered = 5, .accept_rate = 1}}, free_to_16(), 0, -1),
            std::vector<int>{0});
}

/// The best ratio of all lengths that are allowed.
double best_of_all(const std::vector<DraftOffer>& rows, int64_t num_other_tokens,
                   int64_t max_drafts, const StepCosts& costs, DraftingCost drafting) {
  std::vector<int> drafts(rows.size(), 0);
  double best = 0;
  while (true) {
    if (std::accumulate(drafts.begin(), drafts.end(), 0) <= max_drafts) {
      best = std::max(best, ratio_of(rows, drafts, num_other_tokens, costs, drafting));
    }
    size_t i = 0;
    while (i < rows.size() && drafts[i] == rows[i].num_offered) drafts[i++] = 0;
    if (i == rows.size()) return best;
    ++drafts[i];
  }
}

TEST(DraftLengths, AreAsGoodAsTheBestOfAll) {
  for (int round = 0; round < 300; ++round) {
    std::vector<StepCost> measured(static_cast<size_t>(testing::random_int(1, 6)));
    for (StepCost& each : measured) {
      each = {testing::random_int(1, 24), static_cast<double>(testing::random_int(10, 30))};
    }
    const StepCosts costs(measured);
    std::vector<DraftOffer> rows(static_cast<size_t>(testing::random_int(1, 4)));
    for (DraftOffer& row : rows) {
      row = {.num_offered = static_cast<int>(testing::random_int(0, 5)),
             .num_certain = static_cast<int>(testing::random_int(0, 2)),
             .accept_rate = static_cast<double>(testing::random_int(0, 10)) / 10,
             .is_made = testing::random_int(0, 1) == 0};
    }
    DraftLengths lengths{.rows = rows,
                         .num_other_tokens = testing::random_int(0, 10),
                         .max_drafts = testing::random_int(0, 12)};
    if (round % 2 == 0) {
      lengths.drafting = {.begin = static_cast<double>(testing::random_int(0, 4)),
                          .each = static_cast<double>(testing::random_int(0, 4))};
    }
    choose_draft_lengths(lengths, costs);
    const int64_t sum = std::accumulate(lengths.drafts.begin(), lengths.drafts.end(), int64_t{0});
    ASSERT_LE(sum, lengths.max_drafts);
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_GE(lengths.drafts[i], 0);
      ASSERT_LE(lengths.drafts[i], rows[i].num_offered);
    }
    const double best =
        best_of_all(rows, lengths.num_other_tokens, lengths.max_drafts, costs, lengths.drafting);
    ASSERT_NEAR(ratio_of(rows, lengths.drafts, lengths.num_other_tokens, costs, lengths.drafting),
                best, 1e-9 * best);
    ASSERT_NEAR(lengths.tokens_per_second, best, 1e-9 * best);
  }
}

TEST(DraftLengths, AreChosenWithoutAllocating) {
  DraftLengths lengths;
  lengths.reserve(256, 256);
  const StepCosts costs(std::vector<StepCost>{{1, 10}, {512, 11}});
  const int64_t before = testing::num_heap_allocations();
  for (int round = 0; round < 3; ++round) {
    lengths.rows.assign(256, {.num_offered = 15, .num_certain = 1, .accept_rate = 0.7});
    choose_draft_lengths(lengths, costs);
  }
  EXPECT_EQ(testing::num_heap_allocations(), before);
  EXPECT_EQ(std::accumulate(lengths.drafts.begin(), lengths.drafts.end(), 0), 256);
}

}  // namespace
}  // namespace heddle
