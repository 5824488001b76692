#include "engine/drafts/acceptance.h"

#include <algorithm>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

/// What has become of a row.
struct Simulated {
  int64_t num_steps = 0, num_tokens = 0, num_drafts = 0, num_drafting_steps = 0;
};

/// A row of num_steps steps, whose drafts, up to `most` a step, are accepted with probability p.
Simulated simulate(Acceptance& acceptance, double p, int64_t num_steps, int most) {
  std::bernoulli_distribution is_accepted(p);
  Simulated row;
  for (; row.num_steps < num_steps; ++row.num_steps) {
    const int num_drafts = acceptance.offer(most).num_offered;
    int num_accepted = 0;
    while (num_accepted < num_drafts && is_accepted(testing::rng())) ++num_accepted;
    acceptance.add_step(num_drafts, num_accepted);
    row.num_tokens += 1 + num_accepted;
    row.num_drafts += num_drafts;
    row.num_drafting_steps += num_drafts > 0 ? 1 : 0;
  }
  return row;
}

TEST(Acceptance, TriesFewDraftsOnATextThatAcceptsNone) {
  for (const int most : {1, 4, 15}) {
    Acceptance acceptance;
    const Simulated beginning = simulate(acceptance, 0, 100, most);
    EXPECT_LE(beginning.num_drafts, 45) << most;
    EXPECT_LE(beginning.num_drafting_steps, 15) << most;
    EXPECT_TRUE(acceptance.is_stopped());
    EXPECT_LT(acceptance.rate(), 0.1);
    const Simulated rest = simulate(acceptance, 0, 4000, most);
    EXPECT_LE(rest.num_drafts * 50, rest.num_steps) << "2 % of the steps";
    const Simulated end = simulate(acceptance, 0, 10 * 257, most);
    EXPECT_EQ(end.num_drafts, 10) << "one every 256 tokens";
  }
}

TEST(Acceptance, WaitsTwiceAsLongAfterEachProbeThatFails) {
  Acceptance acceptance(0.0);
  for (const int64_t wait : {8, 16, 32, 64, 128, 256, 256}) {
    for (int64_t token = 0; token < wait; ++token) {
      ASSERT_EQ(acceptance.offer(7).num_offered, 0) << wait << " " << token;
      acceptance.add_step(0, 0);
    }
    const DraftOffer probe = acceptance.offer(7);
    ASSERT_EQ(probe.num_offered, 1) << wait;
    ASSERT_EQ(probe.num_certain, 1) << "it is tried whatever the rate is";
    ASSERT_EQ(acceptance.offer(0).num_offered, 0);
    acceptance.add_step(1, 0);
  }
}

TEST(Acceptance, DraftsAgainOnceAProbeIsAccepted) {
  Acceptance acceptance;
  simulate(acceptance, 0, 1000, 8);
  ASSERT_TRUE(acceptance.is_stopped());
  while (acceptance.offer(8).num_offered == 0) acceptance.add_step(0, 0);
  acceptance.add_step(1, 1);
  EXPECT_FALSE(acceptance.is_stopped());
  EXPECT_GT(acceptance.rate(), 0.3);
  EXPECT_EQ(acceptance.offer(8).num_offered, 8);
  // And when it stops once more it waits 8 tokens at first, not 256.
  while (!acceptance.is_stopped()) acceptance.add_step(acceptance.offer(8).num_offered, 0);
  for (int i = 0; i < 8; ++i) acceptance.add_step(0, 0);
  EXPECT_EQ(acceptance.offer(8).num_offered, 1);
}

TEST(Acceptance, NeverStopsWhereAllIsAccepted) {
  Acceptance acceptance;
  const Simulated row = simulate(acceptance, 1, 500, 15);
  EXPECT_EQ(row.num_drafts, 500 * 15);
  EXPECT_GT(acceptance.rate(), 0.99);
}

TEST(Acceptance, KnowsTheRateOfAStream) {
  for (const double p : {0.3, 0.7}) {
    Acceptance acceptance;
    simulate(acceptance, p, 100, 4);
    double sum = 0;
    constexpr int kSteps = 20000;
    int64_t num_drafting = 0;
    for (int i = 0; i < kSteps; ++i) {
      num_drafting += simulate(acceptance, p, 1, 4).num_drafting_steps;
      sum += acceptance.rate();
    }
    EXPECT_NEAR(sum / kSteps, p, 0.07) << p;
    EXPECT_GT(num_drafting, kSteps * (p > 0.5 ? 0.99 : 0.8)) << p;
  }
}

TEST(Acceptance, FollowsAStreamThatChangesInTheMiddle) {
  Acceptance acceptance;
  simulate(acceptance, 1, 200, 8);
  const Simulated fails = simulate(acceptance, 0, 200, 8);
  EXPECT_TRUE(acceptance.is_stopped());
  EXPECT_LE(fails.num_drafts, 60);
  const Simulated succeeds = simulate(acceptance, 1, 400, 8);
  EXPECT_FALSE(acceptance.is_stopped());
  EXPECT_GE(succeeds.num_tokens, (400 - 257) * 9) << "after the wait of at most 256 tokens";
  simulate(acceptance, 0.7, 200, 8);
  EXPECT_GT(acceptance.rate(), 0.25);
  EXPECT_LT(acceptance.rate(), 0.99);
}

TEST(Acceptance, TriesHalfAsManyAfterEachStepWithoutAnAcceptedDraft) {
  Acceptance acceptance(1.0);
  for (const int expected : {15, 8, 4, 2, 1, 1}) {
    ASSERT_EQ(acceptance.offer(15).num_offered, expected);
    acceptance.add_step(expected, 0);
  }
  acceptance.add_step(1, 1);
  EXPECT_EQ(acceptance.offer(15).num_offered, 15);
}

TEST(Acceptance, LeavesDraftsThatCannotFailOutOfTheRate) {
  Acceptance acceptance(0.0);
  const DraftOffer offer = acceptance.offer(5, 3);
  EXPECT_EQ(offer.num_offered, 3) << "also of a row that has stopped";
  EXPECT_EQ(offer.num_certain, 3);
  acceptance.add_step(3, 3, 3);
  EXPECT_EQ(acceptance.rate(), 0);
  acceptance.add_step(3, 3, 3);  // 8 tokens
  EXPECT_EQ(acceptance.offer(5, 3).num_offered, 4) << "and a probe";
  EXPECT_EQ(acceptance.offer(5, 3).num_certain, 4);
  acceptance.add_step(4, 4, 3);
  EXPECT_FALSE(acceptance.is_stopped());
  const double before = acceptance.rate();
  acceptance.add_step(5, 3, 3);
  EXPECT_LT(acceptance.rate(), before);
}

TEST(Acceptance, LooksAgainWhereDraftsHaveNotPaidForALongTime) {
  Acceptance acceptance(0.5);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(acceptance.offer(6).num_certain, 0);
    EXPECT_EQ(acceptance.offer(6).num_offered, 6);
    acceptance.add_step(0, 0);
  }
  EXPECT_EQ(acceptance.offer(6).num_offered, 1);
  EXPECT_EQ(acceptance.offer(6).num_certain, 1);
  acceptance.add_step(1, 0);
  EXPECT_FALSE(acceptance.is_stopped());
  EXPECT_EQ(acceptance.offer(6).num_certain, 0);
}

TEST(Acceptance, TakesOffersAndAveragesThatAreNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double average : {nan, -1.0}) {
    EXPECT_EQ(Acceptance(average).rate(), 0);
    EXPECT_TRUE(Acceptance(average).is_stopped());
  }
  EXPECT_EQ(Acceptance(2.0).rate(), 1);
  EXPECT_EQ(Acceptance().offer(-1).num_offered, 0);
  EXPECT_EQ(Acceptance().offer(2, 5).num_certain, 2);
  EXPECT_EQ(Acceptance().offer(2, -5).num_certain, 0);
}

TEST(AcceptanceAverage, IsThereAfterSixteenDraftsAndIsTheirMeanAtFirst) {
  AcceptanceAverage average;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(average.rate().has_value());
    average.add_step(6, 2);  // two accepted, one rejected, three that say nothing
  }
  average.add_step(5, 5, 4);
  ASSERT_TRUE(average.rate().has_value());
  EXPECT_NEAR(*average.rate(), 11.0 / 16, 1e-12);
  for (int i = 0; i < 4000; ++i) average.add_step(1, 0);
  EXPECT_LT(*average.rate(), 0.01);
}

}  // namespace
}  // namespace heddle
