#include "engine/adapters/adapter_schedule.h"

#include <algorithm>
#include <list>
#include <set>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

using enum AdapterStage;
using Rows = std::vector<std::vector<int32_t>>;
using Numbers = std::vector<int32_t>;
using enum Admission;

/// The schedule for rows that want these adapters.
AdapterSchedule scheduled(std::vector<ScheduledAdapter> adapters, const Rows& rows,
                          const AdapterBounds& bounds) {
  AdapterSchedule schedule{.adapters = std::move(adapters)};
  for (const auto& uses : rows) {
    const auto begin = static_cast<int32_t>(schedule.uses.size());
    schedule.uses.insert(schedule.uses.end(), uses.begin(), uses.end());
    schedule.rows.push_back({begin, static_cast<int32_t>(schedule.uses.size())});
  }
  schedule_adapters(schedule, bounds);
  return schedule;
}

TEST(ScheduleAdapters, RowsWhoseAdaptersAreResidentStartBeforeOthers) {
  const AdapterSchedule schedule = scheduled({{.num_bytes = 1, .stage = kResident},
                                              {.num_bytes = 1, .stage = kStaged},
                                              {.num_bytes = 1, .stage = kStored}},
                                             {{1}, {0}, {2}, {}, {0, 1}}, {.memory_bytes = 3});
  EXPECT_EQ(schedule.admissions, (std::vector{kWaits, kStarts, kWaits, kStarts, kWaits}));
  EXPECT_EQ(schedule.brings, Numbers{1});
  EXPECT_EQ(schedule.reads, Numbers{2});
  EXPECT_EQ(schedule.evicts, Numbers{});
}

TEST(ScheduleAdapters, TheOneUsedTheLongestAgoMakesRoom) {
  const auto resident = [](uint64_t last_used, int64_t num_running = 0, bool stays = false) {
    return ScheduledAdapter{.num_bytes = 2,
                            .stage = kResident,
                            .stays = stays,
                            .num_running = num_running,
                            .last_used = last_used};
  };
  const ScheduledAdapter wanted{.num_bytes = 3, .stage = kStaged};
  const AdapterSchedule schedule = scheduled(
      {resident(5), resident(2), resident(1, 1), resident(0, 0, true), resident(4), wanted},
      {{5}, {1}}, {.memory_bytes = 10});
  EXPECT_EQ(schedule.evicts, (Numbers{4, 0}))
      << "wanted, in use, or they stay: the others are older";
  EXPECT_EQ(schedule.brings, Numbers{5});
  EXPECT_EQ(schedule.admissions, (std::vector{kWaits, kStarts}));
}

/// No row starts with the one that makes room, whatever else it uses.
TEST(ScheduleAdapters, OneInUseLeavesForTheFirstRowWithoutRoom) {
  const std::vector<ScheduledAdapter> adapters = {
      {.num_bytes = 1, .stage = kResident, .num_running = 3, .last_used = 8},
      {.num_bytes = 1, .stage = kResident, .num_running = 1, .last_used = 7},
      {.num_bytes = 1, .stage = kStaged},
      {.num_bytes = 1, .stage = kStored}};
  const AdapterSchedule schedule =
      scheduled(adapters, {{2}, {1}, {0}, {3}, {0, 1}, {}}, {.memory_bytes = 2});
  EXPECT_EQ(schedule.admissions, (std::vector{kWaits, kWaits, kStarts, kWaits, kWaits, kStarts}));
  EXPECT_EQ(schedule.evicts, Numbers{});
  EXPECT_EQ(schedule.brings, Numbers{});
  EXPECT_EQ(schedule.reads, Numbers{3}) << "it may be read";
}

TEST(ScheduleAdapters, AStepHasNoMoreThanItsBounds) {
  std::vector<ScheduledAdapter> adapters;
  for (uint64_t i = 0; i < 4; ++i) {
    adapters.push_back({.num_bytes = 10, .stage = kResident, .last_used = i});
  }
  adapters[0].num_running = adapters[1].num_running = 1;
  const AdapterBounds three{.memory_bytes = 100, .step_adapters = 3};
  AdapterSchedule schedule = scheduled(adapters, {{2}, {3}, {0}, {1}}, three);
  EXPECT_EQ(schedule.admissions, (std::vector{kStarts, kWaits, kWaits, kStarts})) << "0 leaves";
  const AdapterBounds bytes{.memory_bytes = 100, .step_bytes = 29};
  schedule = scheduled(adapters, {{2}, {1}}, bytes);
  EXPECT_EQ(schedule.admissions, (std::vector{kWaits, kStarts}));
  for (ScheduledAdapter& adapter : adapters) adapter.num_running = 0;
  schedule = scheduled(adapters, {{0, 1, 2, 3}, {1}}, bytes);
  EXPECT_EQ(schedule.admissions, (std::vector{kStarts, kStarts}))
      << "a row alone needs what it needs";
}

TEST(ScheduleAdapters, WhatCanNeverFitIsSaid) {
  const ScheduledAdapter stays{.num_bytes = 2, .stage = kResident, .stays = true};
  const ScheduledAdapter wanted{.num_bytes = 3, .stage = kStaged};
  EXPECT_EQ(scheduled({stays, wanted}, {{1}}, {.memory_bytes = 4}).admissions[0], kNever);
  EXPECT_EQ(scheduled({stays, wanted}, {{1}}, {.memory_bytes = 5}).admissions[0], kWaits);
  ScheduledAdapter in_use = stays;
  in_use.num_running = 1;
  EXPECT_EQ(scheduled({in_use, wanted}, {{1}}, {.memory_bytes = 4}).admissions[0], kWaits);
}

/// Rows over adapters in the tiers, step by step: what schedules say is done after random times.
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
      adapters_[a].stage = adapters_[a].stage == kReading ? kStaged : kResident;
    }
    std::erase_if(running_, [&](Row& row) {
      if (--row.length > 0) return false;
      for (const int32_t a : row.uses) --adapters_[size_t(a)].num_running;
      return true;
    });
    carry_out(schedule_now());
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

  [[nodiscard]] AdapterSchedule schedule_now() const {
    Rows rows;
    for (const Row& row : waiting_) rows.push_back(row.uses);
    return scheduled(adapters_, rows, bounds_);
  }

  void carry_out(const AdapterSchedule& schedule) {
    for (const int32_t a : schedule.evicts) {
      EXPECT_EQ(adapters_[size_t(a)].stage, kResident);
      EXPECT_EQ(adapters_[size_t(a)].num_running, 0);
      adapters_[size_t(a)].stage = testing::random_int(0, 1) == 0 ? kStored : kStaged;
    }
    for (const int32_t a : schedule.brings) begin(a, kStaged, kMoving);
    num_brought_ += std::ssize(schedule.brings);
    for (const int32_t a : schedule.reads) {
      if (testing::random_int(0, 3) > 0) begin(a, kStored, kReading);  // else all threads read
    }
    const Row* const front = waiting_.empty() ? nullptr : &waiting_.front();
    auto row = waiting_.begin();
    for (size_t i = 0; row != waiting_.end() && std::ssize(running_) < max_batch_; ++i) {
      ASSERT_NE(schedule.admissions[i], kNever);
      const auto next = std::next(row);
      if (schedule.admissions[i] == kStarts) {
        for (const int32_t a : row->uses) {
          ScheduledAdapter& adapter = adapters_[size_t(a)];
          EXPECT_EQ(adapter.stage, kResident);
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

  void begin(int32_t a, AdapterStage from, AdapterStage to) {
    EXPECT_EQ(adapters_[size_t(a)].stage, from);
    adapters_[size_t(a)].stage = to;
    left_[size_t(a)] = testing::random_int(1, kLongestMove);
  }

  void check() const {
    int64_t bytes = 0, step_bytes = 0, step_adapters = 0;
    for (const ScheduledAdapter& adapter : adapters_) {
      const bool is_in = adapter.stage == kResident || adapter.stage == kMoving;
      bytes += is_in ? adapter.num_bytes : 0;
      if (adapter.num_running == 0) continue;
      EXPECT_EQ(adapter.stage, kResident) << "evicted in use";
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
  std::vector<ScheduledAdapter> adapters_;
  std::vector<int64_t> left_;  // steps until a read or a move is done
  std::list<Row> waiting_, running_;
  uint64_t num_uses_ = 0;
  int64_t now_ = 0, front_since_ = 0, longest_at_front_ = 0, num_brought_ = 0;
};

/// All rows of random traces start and end, none waits at the front for longer than rows that run
/// take to make room and its adapters to arrive, and memory and steps keep their bounds.
TEST(ScheduleAdapters, RandomTracesKeepTheirBoundsAndServeEveryRow) {
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
    // What is in flight for others, rows that run, a read and a move for each of its adapters, and
    // a thread for that; then again for the bounds of a step.
    EXPECT_LE(trace.longest_at_front(), 3 * Trace::kLongestRow + 60);
  }
}

/// A row waits for an adapter while rows of others never stop to arrive, whose adapters alone take
/// all memory.
TEST(ScheduleAdapters, AStreamOfOthersStarvesNoRow) {
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

/// Where the rows of an adapter are together in the queue, it moves once for all of them.
TEST(ScheduleAdapters, RowsOfOneAdapterShareItsMove) {
  Trace trace(40, 8, {.memory_bytes = 8});
  for (int i = 0; i < 800; ++i) trace.submit({i % 8 + i / 80 % 5 * 8});
  for (int i = 0; i < 20000 && !trace.is_done(); ++i) trace.step();
  EXPECT_TRUE(trace.is_done());
  EXPECT_LT(trace.num_brought(), 400) << "less than one for two rows";
}

}  // namespace
}  // namespace heddle
