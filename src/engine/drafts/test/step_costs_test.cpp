#include "engine/drafts/step_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

TEST(StepCosts, AreLinearBetweenEntriesAndContinueAfterTheLast) {
  const StepCosts costs(std::vector<StepCost>{{2, 10}, {8, 13}, {16, 21}});
  EXPECT_DOUBLE_EQ(costs.seconds(1), 10) << "of the first entry";
  EXPECT_DOUBLE_EQ(costs.seconds(2), 10);
  EXPECT_DOUBLE_EQ(costs.seconds(4), 11);
  EXPECT_DOUBLE_EQ(costs.seconds(8), 13);
  EXPECT_DOUBLE_EQ(costs.seconds(15), 20);
  EXPECT_DOUBLE_EQ(costs.seconds(16), 21);
  EXPECT_DOUBLE_EQ(costs.seconds(26), 31);
}

TEST(StepCosts, DoNotBelieveAStepThatTookLongerThanALongerOne) {
  const StepCosts costs(std::vector<StepCost>{{1, 10}, {2, 90}, {4, 12}, {8, 20}});
  EXPECT_DOUBLE_EQ(costs.seconds(1), 10);
  EXPECT_DOUBLE_EQ(costs.seconds(2), 12);
  EXPECT_DOUBLE_EQ(costs.seconds(4), 12);
  EXPECT_DOUBLE_EQ(costs.seconds(6), 16);
}

TEST(StepCosts, RiseAfterAFlatEndAsTheyDoOnAverage) {
  const StepCosts costs(std::vector<StepCost>{{1, 10}, {5, 14}, {9, 18}, {17, 18}});
  EXPECT_DOUBLE_EQ(costs.seconds(13), 18);
  EXPECT_DOUBLE_EQ(costs.seconds(19), 19);
}

TEST(StepCosts, TakeEntriesInAnyOrderAndLeaveOutWhatIsNoMeasurement) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const StepCosts costs(std::vector<StepCost>{
      {8, 4}, {2, 3}, {4, nan}, {1, 1}, {16, infinity}, {0, 7}, {3, 0}, {5, -1}, {8, 9}, {8, 5}});
  ASSERT_EQ(costs.table().size(), 3U);
  EXPECT_EQ(costs.table()[1].num_tokens, 2);
  EXPECT_DOUBLE_EQ(costs.seconds(8), 4) << "the shortest of three";
  EXPECT_DOUBLE_EQ(costs.seconds(5), 3.5);
}

TEST(StepCosts, AreTheSameForAllStepsWhereOneOrNoneWasMeasured) {
  EXPECT_DOUBLE_EQ(StepCosts().seconds(100), 1);
  const StepCosts one(std::vector<StepCost>{{8, 2}});
  for (const int64_t num_tokens : {1, 8, 1000}) EXPECT_DOUBLE_EQ(one.seconds(num_tokens), 2);
}

TEST(StepCosts, NeverFallWhateverWasMeasured) {
  for (int round = 0; round < 200; ++round) {
    std::vector<StepCost> measured(static_cast<size_t>(testing::random_int(1, 12)));
    for (StepCost& each : measured) {
      each = {testing::random_int(1, 40), static_cast<double>(testing::random_int(1, 1000))};
    }
    const StepCosts costs(measured);
    for (int64_t n = 1; n < 60; ++n) ASSERT_TRUE(costs.seconds(n) <= costs.seconds(n + 1)) << n;
    for (const StepCost& each : measured) {
      ASSERT_TRUE(costs.seconds(each.num_tokens) <= each.seconds * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace heddle
