#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "limits/key_use.h"
#include "limits/limits_file.h"
#include "limits/rate_limits.h"
#include "temp_folder.h"

namespace heddle::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = RateLimits::Time;

constexpr Time kStart = Time() + std::chrono::hours(100);

TEST(MinuteQuota, RefillsSteadilyUpToAMinute) {
  MinuteQuota quota(60);
  EXPECT_EQ(quota.num_left(kStart), 60) << "full at first";
  quota.take(60, kStart);
  EXPECT_EQ(quota.num_left(kStart), 0);
  EXPECT_EQ(quota.time_until(1, kStart).count(), 1);
  EXPECT_EQ(quota.num_left(kStart + milliseconds(999)), 0);
  EXPECT_EQ(quota.num_left(kStart + seconds(1)), 1);
  EXPECT_EQ(quota.num_left(kStart + seconds(30)), 30);
  EXPECT_EQ(quota.num_left(kStart + seconds(90)), 60) << "no more than a minute brings";
}

TEST(MinuteQuota, PaysDebtsBack) {
  MinuteQuota quota(60);
  quota.take(90, kStart);
  EXPECT_EQ(quota.num_left(kStart), 0);
  EXPECT_EQ(quota.time_until(1, kStart).count(), 31);
  EXPECT_EQ(quota.num_left(kStart + seconds(30)), 0);
  EXPECT_EQ(quota.num_left(kStart + seconds(31)), 1);
  EXPECT_EQ(quota.time_until(60, kStart).count(), 90) << "until it is as at first";
}

TEST(MinuteQuota, ATimeThatGoesBackGivesNothing) {
  MinuteQuota quota(60);
  quota.take(60, kStart);
  EXPECT_EQ(quota.num_left(kStart - seconds(50)), 0);
  quota.take(0, kStart - seconds(50));
  EXPECT_EQ(quota.num_left(kStart), 0);
}

/// Whoever comes as soon as the refusal said is served, and in no minute more than two minutes'
/// worth are: what was left, and what came.
TEST(RateLimits, WhoComesAgainAsToldIsServed) {
  for (int64_t per_minute = 1; per_minute < 200; per_minute += 7) {
    RateLimits limits({{"a", {.requests_per_minute = per_minute}}});
    Time now = kStart;
    int64_t num_admitted = 0;
    const Time end = kStart + seconds(300);
    while (now < end) {
      const auto refusal = limits.admit("a", 1, now);
      if (!refusal) {
        ++num_admitted;
        limits.release("a", 1);
        now += milliseconds(37);
        continue;
      }
      ASSERT_GT(refusal->retry_after.count(), 0);
      now += std::chrono::duration_cast<Time::duration>(refusal->retry_after);
      EXPECT_FALSE(limits.admit("a", 1, now)) << per_minute;
      limits.release("a", 1);
      ++num_admitted;
    }
    EXPECT_LE(num_admitted, 6 * per_minute + 1);
  }
}

TEST(RateLimits, TokensAreChargedAsTheyAreServed) {
  RateLimits limits({{"a", {.tokens_per_minute = 600}}});
  EXPECT_FALSE(limits.admit("a", 1, kStart));
  EXPECT_FALSE(limits.admit("a", 1, kStart)) << "until the tokens are used";
  limits.charge("a", 700, kStart);
  const auto refusal = limits.admit("a", 1, kStart);
  ASSERT_TRUE(refusal);
  EXPECT_NEAR(refusal->retry_after.count(), 10.1, 1e-9) << "100 of debt and one, at 10 a second";
  EXPECT_EQ(refusal->reason,
            "this key has used its 600 tokens a minute (--limits); try again in 11s");
  EXPECT_FALSE(limits.admit("a", 1, kStart + milliseconds(10100)));
}

TEST(RateLimits, RowsAreGivenBack) {
  RateLimits limits({{"a", {.max_rows = 3}}});
  EXPECT_FALSE(limits.admit("a", 2, kStart));
  const auto refusal = limits.admit("a", 2, kStart);
  ASSERT_TRUE(refusal);
  EXPECT_GT(refusal->retry_after.count(), 0);
  EXPECT_EQ(refusal->reason,
            "this key has 2 of 3 answers that it may have at once (--limits); try again later");
  {
    const KeyUse one(limits, "a", 0);
    EXPECT_FALSE(limits.admit("a", 1, kStart));
    const KeyUse use(limits, "a", 3);
  }
  EXPECT_FALSE(limits.admit("a", 3, kStart));
  const auto never = limits.admit("a", 4, kStart);
  ASSERT_TRUE(never);
  EXPECT_EQ(never->retry_after.count(), 0) << "there is no time at which it would pass";
}

TEST(RateLimits, WhatIsRefusedCountsNothing) {
  RateLimits limits({{"a", {.requests_per_minute = 5, .max_rows = 1}}});
  EXPECT_FALSE(limits.admit("a", 1, kStart));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(limits.admit("a", 1, kStart));
  EXPECT_EQ(limits.quotas("a", kStart).requests->num_left, 4);
  limits.release("a", 1);
  EXPECT_FALSE(limits.admit("a", 1, kStart));
}

TEST(RateLimits, AreOfEachHolderAlone) {
  RateLimits limits(
      {{"a", {.requests_per_minute = 1, .adapters = {{"sql", "acme/*"}}}}, {"b", {}}});
  EXPECT_FALSE(limits.admit("a", 1, kStart));
  EXPECT_TRUE(limits.admit("a", 1, kStart));
  for (const char* const other : {"b", "c", ""}) {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(limits.admit(other, 100, kStart));
    EXPECT_FALSE(limits.quotas(other, kStart).requests);
    EXPECT_TRUE(limits.allows(other, "anything"));
    limits.charge(other, 5, kStart);
    limits.release(other, 100);
  }
  for (const char* const name : {"sql", "acme/x", "acme/"}) EXPECT_TRUE(limits.allows("a", name));
  for (const char* const name : {"base", "sq", "sqlx", "acme", ""}) {
    EXPECT_FALSE(limits.allows("a", name)) << name;
  }
}

TEST(RateLimits, SayWhatIsLeft) {
  RateLimits limits({{"a", {.requests_per_minute = 2, .tokens_per_minute = 60}}});
  EXPECT_FALSE(limits.admit("a", 1, kStart));
  limits.charge("a", 20, kStart);
  const RateLimits::Quotas quotas = limits.quotas("a", kStart);
  EXPECT_EQ(quotas.requests->limit, 2);
  EXPECT_EQ(quotas.requests->num_left, 1);
  EXPECT_EQ(quotas.requests->reset.count(), 30);
  EXPECT_EQ(quotas.tokens->limit, 60);
  EXPECT_EQ(quotas.tokens->num_left, 40);
  EXPECT_EQ(quotas.tokens->reset.count(), 20);
}

TEST(RateLimits, DurationsAreWrittenAsOpenAiHasThem) {
  const auto text = [](double time) { return duration_text(RateLimits::Seconds(time)); };
  EXPECT_EQ(text(0), "0ms");
  EXPECT_EQ(text(0.0171), "18ms");
  EXPECT_EQ(text(1), "1s");
  EXPECT_EQ(text(1.01), "2s");
  EXPECT_EQ(text(60), "1m0s");
  EXPECT_EQ(text(359.5), "6m0s");
}

class LimitsFile : public ::testing::Test {
 protected:
  std::map<std::string, KeyLimit> read(const std::string& text) const {
    const std::vector<std::string> names{"chat", "reports"}, others{"root"};
    return read_limits(folder_.write("limits.toml", text), names, others);
  }
  testing::TempFolder folder_;
};

TEST_F(LimitsFile, SectionsGoBeforeWhatHoldsForAll) {
  const auto limits = read(
      "requests-per-minute = 60  # of each\nadapters = [\"base\"]\n\n[reports]\n"
      "requests-per-minute = 5\ntokens-per-minute = 1_000\n[root]\nmax-rows = 2\n");
  ASSERT_EQ(limits.size(), 3U);
  EXPECT_EQ(limits.at("chat").requests_per_minute, 60);
  EXPECT_FALSE(limits.at("chat").tokens_per_minute);
  EXPECT_EQ(limits.at("reports").requests_per_minute, 5);
  EXPECT_EQ(limits.at("reports").tokens_per_minute, 1000);
  EXPECT_EQ(limits.at("reports").adapters, std::vector<std::string>{"base"});
  EXPECT_FALSE(limits.at("root").requests_per_minute) << "a key of administrators";
  EXPECT_EQ(limits.at("root").max_rows, 2);
  const auto late = read("priority = 10\n[reports]\npriority = -3\n");
  EXPECT_EQ(late.at("chat").priority, 10);
  EXPECT_EQ(late.at("reports").priority, -3);
  const RateLimits rates(late);
  EXPECT_EQ(rates.priority("chat"), 10);
  EXPECT_FALSE(rates.priority("root"));
}

TEST_F(LimitsFile, EveryMistakeIsNamedWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"\nrequest-per-minute = 1\n",
       "line 2: there is no limit \"request-per-minute\"; did you mean \"requests-per-minute\"?"},
      {"[report]\n", "line 1: there is no key of the name \"report\"; did you mean \"reports\"?"},
      {"max-rows = 0\n", "line 1: max-rows: expected a whole number from 1 to 1000000000"},
      {"max-rows = 1.5\n", "line 1: max-rows: expected a whole number"},
      {"priority = [1]\n",
       "line 1: priority: expected a whole number from -1000000000 to 1000000000"},
      {"priority = 1_000_000_001\n", "line 1: priority: expected a whole number from -1000000000"},
      {"max-rows = [1]\n", "line 1: max-rows: expected a whole number"},
      {"max-rows = -1\n", "line 1: max-rows: expected a whole number"},
      {"adapters = \"sql\"\n", "line 1: adapters: expected a list of names such as"},
      {"adapters = []\n", "line 1: adapters: expected a list"},
      {"adapters = [\"\"]\n", "line 1: adapters: expected a list"},
      {"max-rows = 1\nmax-rows = 2\n", "line 2: "},
      {"[chat]\n[reports.x]\n", "line 2: \"x\": expected a text, a number"},
      {"max-rows = \n", "line 1: "}};
  for (const auto& [text, sentence] : wrong) {
    const std::string message = testing::message_of([&] { (void)read(text); });
    EXPECT_TRUE(message.starts_with("--limits ")) << message;
    EXPECT_NE(message.find(sentence), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace heddle::serve
