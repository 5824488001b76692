#include "engine/adapters/adapter_plan.h"

#include <algorithm>
#include <list>
#include <set>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

using enum AdapterPlace;
using Rows = std::vector<std::vector<int32_t>>;
using Numbers = std::vector<int32_t>;
using enum Admission;

/// The plan for rows that want these adapters.
AdapterPlan planned(std::vector<PlannedAdapter> adapters, const Rows& rows,
                    const AdapterBounds& bounds) {
  AdapterPlan plan{.adapters = std::move(adapters)};
  for (const auto& uses : rows) {
    const auto begin = static_cast<int32_t>(plan.uses.size());
    plan.uses.insert(plan.uses.end(), uses.begin(), uses.end());
    plan.rows.push_back({begin, static_cast<int32_t>(plan.uses.size())});
  }
  plan_adapters(plan, bounds);
  return plan;
}

TEST(PlanAdapters, RowsWhoseAdaptersAreThereStartBeforeOthers) {
  const AdapterPlan plan = planned({{.num_bytes = 1, .place = kThere},
                                    {.num_bytes = 1, .place = kAtHand},
                                    {.num_bytes = 1, .place = kAway}},
                                   {{1}, {0}, {2}, {}, {0, 1}}, {.memory_bytes = 3});
  EXPECT_EQ(plan.row_plans, (std::vector{kWaits, kStarts, kWaits, kStarts, kWaits}));
  EXPECT_EQ(plan.brings, Numbers{1});
  EXPECT_EQ(plan.reads, Numbers{2});
  EXPECT_EQ(plan.evicts, Numbers{});
}

TEST(PlanAdapters, TheOneUsedTheLongestAgoMakesRoom) {
  const auto there = [](uint64_t last_used, int64_t num_running = 0, bool stays = false) {
    return PlannedAdapter{.num_bytes = 2,
                          .place = kThere,
                          .stays = stays,
                          .num_running = num_running,
                          .last_used = last_used};
  };
  const PlannedAdapter wanted{.num_bytes = 3, .place = kAtHand};
  const AdapterPlan plan =
      planned({there(5), there(2), there(1, 1), there(0, 0, true), there(4), wanted}, {{5}, {1}},
              {.memory_bytes = 10});
  EXPECT_EQ(plan.evicts, (Numbers{4, 0})) << "wanted, in use, or they stay: the others are older";
  EXPECT_EQ(plan.brings, Numbers{5});
  EXPECT_EQ(plan.row_plans, (std::vector{kWaits, kStarts}));
}

/// Nobody starts with the one that shall make room, whatever else they do.
TEST(PlanAdapters, OneInUseLeavesForTheFirstRowWithoutRoom) {
  const std::vector<PlannedAdapter> adapters = {
      {.num_bytes = 1, .place = kThere, .num_running = 3, .last_used = 8},
      {.num_bytes = 1, .place = kThere, .num_running = 1, .last_used = 7},
      {.num_bytes = 1, .place = kAtHand},
      {.num_bytes = 1, .place = kAway}};
  const AdapterPlan plan = planned(adapters, {{2}, {1}, {0}, {3}, {0, 1}, {}}, {.memory_bytes = 2});
  EXPECT_EQ(plan.row_plans, (std::vector{kWaits, kWaits, kStarts, kWaits, kWaits, kStarts}));
  EXPECT_EQ(plan.evicts, Numbers{});
  EXPECT_EQ(plan.brings, Numbers{});
  EXPECT_EQ(plan.reads, Numbers{3}) << "from its file it may come";
}

TEST(PlanAdapters, AStepHasNoMoreThanItsBounds) {
  std::vector<PlannedAdapter> adapters;
  for (uint64_t i = 0; i < 4; ++i) {
    adapters.push_back({.num_bytes = 10, .place = kThere, .last_used = i});
  }
  adapters[0].num_running = adapters[1].num_running = 1;
  const AdapterBounds three{.memory_bytes = 100, .step_adapters = 3};
  AdapterPlan plan = planned(adapters, {{2}, {3}, {0}, {1}}, three);
  EXPECT_EQ(plan.row_plans, (std::vector{kStarts, kWaits, kWaits, kStarts})) << "0 leaves";
  const AdapterBounds bytes{.memory_bytes = 100, .step_bytes = 29};
  plan = planned(adapters, {{2}, {1}}, bytes);
  EXPECT_EQ(plan.row_plans, (std::vector{kWaits, kStarts}));
  for (PlannedAdapter& adapter : adapters) adapter.num_running = 0;
  plan = planned(adapters, {{0, 1, 2, 3}, {1}}, bytes);
  EXPECT_EQ(plan.row_plans, (std::vector{kStarts, kStarts})) << "a row alone needs what it needs";
}

TEST(PlanAdapters, WhatCanNeverFitIsSaid) {
  const PlannedAdapter stays{.num_bytes = 2, .place = kThere, .stays = true};
  const PlannedAdapter wanted{.num_bytes = 3, .place = kAtHand};
  EXPECT_EQ(planned({stays, wanted}, {{1}}, {.memory_bytes = 4}).row_plans[0], kNever);
  EXPECT_EQ(planned({stays, wanted}, {{1}}, {.memory_bytes = 5}).row_plans[0], kWaits);
  PlannedAdapter in_use = stays;
  in_use.num_running = 1;
  EXPECT_EQ(planned({in_use, wanted}, {{1}}, {.memory_bytes = 4}).row_plans[0], kWaits);
}

/// Rows over adapters in the tiers, step by step: what plans say is done after random times.
class Trace {
 public:
  static constexpr int64_t kLongestRow = 20, kLongestMove = 3;

  Trace(int num_adapters, int max_batch, const AdapterBounds& bounds)
      : max_batch_(max_batch), bounds_(bounds) {
    for (int i = 0; i < num_adapters; ++i) {
      adapters_.push_back({.num_bytes = testing::random_int(1, 4)});
    }
    left_.resize(adapters_.size());
  }

  void submit(std::vector<int32_t> uses) {
    int64_t bytes = 0;
    for (const int32_t a : uses) bytes += adapters_[size_t(a)].num_bytes;
    if (bytes > bounds_.memory_bytes) return;
    waiting_.push_back({std::move(uses), testing::random_int(1, kLongestRow)});
  }

  void step() {
    ++now_;
    for (size_t a = 0; a < adapters_.size(); ++a) {
      if (left_[a] == 0 || --left_[a] > 0) continue;
      adapters_[a].place = adapters_[a].place == kReading ? kAtHand : kThere;
    }
    std::erase_if(running_, [&](Row& row) {
      if (--row.length > 0) return false;
      for (const int32_t a : row.uses) --adapters_[size_t(a)].num_running;
      return true;
    });
    carry_out(plan_now());
    check();
  }

  [[nodiscard]] bool is_done() const { return waiting_.empty() && running_.empty(); }
  [[nodiscard]] size_t num_running() const { return running_.size(); }
  /// The longest that a row was the oldest one.
  [[nodiscard]] int64_t longest_at_front() const { return longest_at_front_; }
  [[nodiscard]] int64_t num_brought() const { return num_brought_; }

 private:
  struct Row {
    std::vector<int32_t> uses;
    int64_t length;
  };

  [[nodiscard]] AdapterPlan plan_now() const {
    Rows rows;
    for (const Row& row : waiting_) rows.push_back(row.uses);
    return planned(adapters_, rows, bounds_);
  }

  void carry_out(const AdapterPlan& plan) {
    for (const int32_t a : plan.evicts) {
      EXPECT_EQ(adapters_[size_t(a)].place, kThere);
      EXPECT_EQ(adapters_[size_t(a)].num_running, 0);
      adapters_[size_t(a)].place = testing::random_int(0, 1) == 0 ? kAway : kAtHand;
    }
    for (const int32_t a : plan.brings) begin(a, kAtHand, kComing);
    num_brought_ += std::ssize(plan.brings);
    for (const int32_t a : plan.reads) {
      if (testing::random_int(0, 3) > 0) begin(a, kAway, kReading);  // else all threads read
    }
    const Row* const front = waiting_.empty() ? nullptr : &waiting_.front();
    auto row = waiting_.begin();
    for (size_t i = 0; row != waiting_.end() && std::ssize(running_) < max_batch_; ++i) {
      ASSERT_NE(plan.row_plans[i], kNever);
      const auto next = std::next(row);
      if (plan.row_plans[i] == kStarts) {
        for (const int32_t a : row->uses) {
          PlannedAdapter& adapter = adapters_[size_t(a)];
          EXPECT_EQ(adapter.place, kThere);
          ++adapter.num_running;
          adapter.last_used = ++num_uses_;
        }
        running_.splice(running_.end(), waiting_, row);
      }
      row = next;
    }
    const bool has_started = waiting_.empty() || &waiting_.front() != front;
    front_since_ = has_started ? now_ : front_since_;
    longest_at_front_ = std::max(longest_at_front_, now_ - front_since_);
  }

  void begin(int32_t a, AdapterPlace from, AdapterPlace to) {
    EXPECT_EQ(adapters_[size_t(a)].place, from);
    adapters_[size_t(a)].place = to;
    left_[size_t(a)] = testing::random_int(1, kLongestMove);
  }

  void check() const {
    int64_t bytes = 0, step_bytes = 0, step_adapters = 0;
    for (const PlannedAdapter& adapter : adapters_) {
      const bool is_in = adapter.place == kThere || adapter.place == kComing;
      bytes += is_in ? adapter.num_bytes : 0;
      if (adapter.num_running == 0) continue;
      EXPECT_EQ(adapter.place, kThere) << "evicted in use";
      step_bytes += adapter.num_bytes;
      ++step_adapters;
    }
    EXPECT_LE(bytes, bounds_.memory_bytes);
    if (running_.size() < 2) return;
    EXPECT_LE(step_bytes, bounds_.step_bytes);
    EXPECT_LE(step_adapters, bounds_.step_adapters);
  }

  int64_t max_batch_;
  AdapterBounds bounds_;
  std::vector<PlannedAdapter> adapters_;
  std::vector<int64_t> left_;  // steps until a read or a move is done
  std::list<Row> waiting_, running_;
  uint64_t num_uses_ = 0;
  int64_t now_ = 0, front_since_ = 0, longest_at_front_ = 0, num_brought_ = 0;
};

/// All rows of random traces start and end, none waits at the front for longer than rows that run
/// take to make room and its adapters to come, and memory and steps keep their bounds.
TEST(PlanAdapters, RandomTracesKeepTheirBoundsAndServeEveryRow) {
  for (int round = 0; round < 20; ++round) {
    const int num_adapters = static_cast<int>(testing::random_int(1, 30));
    const AdapterBounds bounds{.memory_bytes = testing::random_int(4, 24),
                               .step_adapters = testing::random_int(4, 12),
                               .step_bytes = testing::random_int(16, 30)};
    Trace trace(num_adapters, static_cast<int>(testing::random_int(1, 12)), bounds);
    int64_t num_steps = 0;
    for (int i = 0; i < 300; ++i) {
      std::set<int32_t> uses;
      // Some adapters are far more popular than others.
      for (int64_t n = testing::random_int(0, 3); n > 0; --n) {
        const int64_t most = testing::random_int(0, num_adapters - 1);
        uses.insert(static_cast<int32_t>(testing::random_int(0, most)));
      }
      trace.submit({uses.begin(), uses.end()});
      if (i % 3 == 0) trace.step(), ++num_steps;
    }
    while (!trace.is_done() && num_steps < 100000) trace.step(), ++num_steps;
    EXPECT_TRUE(trace.is_done());
    // What is under way for others, rows that run, a read and a move for each of its adapters, and
    // a thread for that; then again for the bounds of a step.
    EXPECT_LE(trace.longest_at_front(), 3 * Trace::kLongestRow + 60);
  }
}

/// A row waits for an adapter that others keep from coming: they never stop to come, and memory
/// has room for theirs alone.
TEST(PlanAdapters, AStreamOfOthersKeepsNobodyWaiting) {
  Trace trace(3, 4, {.memory_bytes = 4});
  for (int i = 0; i < 50; ++i) trace.submit({0});
  trace.submit({1});
  for (int i = 0; i < 400; ++i) {
    trace.submit({0});
    trace.submit({static_cast<int32_t>(i % 2 * 2)});
    trace.step();
  }
  EXPECT_LE(trace.longest_at_front(), 3 * Trace::kLongestRow + 60);
}

/// Where the rows of an adapter are together in the queue, it comes once for all of them.
TEST(PlanAdapters, RowsOfOneAdapterShareItsWay) {
  Trace trace(40, 8, {.memory_bytes = 8});
  for (int i = 0; i < 800; ++i) trace.submit({i % 8 + i / 80 % 5 * 8});
  for (int i = 0; i < 20000 && !trace.is_done(); ++i) trace.step();
  EXPECT_TRUE(trace.is_done());
  EXPECT_LT(trace.num_brought(), 400) << "less than one for two rows";
}

}  // namespace
}  // namespace heddle
