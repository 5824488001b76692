#include "engine/rows/waiting_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/rows/admission.h"
#include "engine/rows/row_queue.h"
#include "random.h"

namespace heddle {
namespace {

using Ids = std::vector<RequestId>;

/// An engine in which each running request costs a token a step. Its requests are a tenant's i-th.
class Load {
 public:
  struct Job {
    std::string tenant;
    int64_t prompt = 0, answer = 0;
    int64_t priority = 0;
  };

  explicit Load(int64_t num_places) : num_places_(num_places) {}

  void submit(const Job& job, double weight = 1) {
    const RequestId id = next_id_++;
    Sequences one = RowQueue::make_row(id);
    one.front().request.prompt_tokens = job.prompt;
    one.front().tenant = rows_.tenant(job.tenant, weight, job.priority);
    rows_.add(one, one.begin());
    jobs_[id] = job;
    ++num_waiting_[job.tenant];
  }

  /// Starts what there are places for, then serves each that runs a token.
  void step() {
    while (std::ssize(running_) < num_places_) {
      const auto order = rows_.order();
      if (order.empty()) break;
      const Job& job = jobs_.at(order.front()->id);
      started_.push_back(order.front()->id);
      --num_waiting_[job.tenant];
      serve(*order.front(), job.prompt);
      rows_.move_to(running_, running_.end(), order.front());
    }
    for (auto next = running_.begin(); next != running_.end();) {
      const auto row = next++;
      Job& job = jobs_.at(row->id);
      serve(*row, 1);
      if (--job.answer == 0) running_.erase(row);
    }
  }

  [[nodiscard]] WaitingRows& rows() { return rows_; }
  [[nodiscard]] int64_t num_running() const { return std::ssize(running_); }
  [[nodiscard]] const Ids& started() const { return started_; }
  [[nodiscard]] const Job& job(RequestId id) const { return jobs_.at(id); }
  [[nodiscard]] bool waits(const std::string& tenant) { return num_waiting_[tenant] > 0; }
  [[nodiscard]] double served(const std::string& tenant) { return served_[tenant]; }

 private:
  void serve(const Sequence& row, int64_t num_tokens) {
    rows_.charge(row, num_tokens);
    served_[jobs_.at(row.id).tenant] += static_cast<double>(num_tokens);
  }

  int64_t num_places_;
  WaitingRows rows_;
  Sequences running_;
  RequestId next_id_ = 0;
  std::map<RequestId, Job> jobs_;
  std::map<std::string, int64_t> num_waiting_;
  std::map<std::string, double> served_;
  Ids started_;
};

constexpr int64_t kLongest = 40;  // tokens of a prompt or an answer

Load::Job random_job(const std::string& tenant) {
  return {tenant, testing::random_int(1, kLongest), testing::random_int(1, kLongest)};
}

/// The same engine, with nothing but lists that are searched.
class PlainLoad {
 public:
  explicit PlainLoad(int64_t num_places) : num_places_(num_places) {}

  void submit(const Load::Job& job, double weight) {
    const Key key{job.priority, job.tenant};
    accounts_[key].weight = weight;
    const bool waits = std::ranges::find(waiting_, key, &Row::key) != waiting_.end();
    if (!waits) accounts_[key].served = std::max(accounts_[key].served, least(job.priority));
    waiting_.push_back({next_id_++, key, job.prompt, job.answer});
  }

  void step() {
    while (std::ssize(running_) < num_places_) {
      forget_idle();
      if (waiting_.empty()) break;
      const auto rank = [this](const Row& row) {
        return std::tuple(row.key.first, accounts_.at(row.key).served, oldest(row.key), row.id);
      };
      const auto next = std::ranges::min_element(waiting_, {}, rank);
      started_.push_back(next->id);
      running_.push_back(*next);
      waiting_.erase(next);
      serve(running_.back().key, running_.back().prompt);
      last_[running_.back().key.first] = running_.back().key.second;
    }
    for (Row& row : running_) {
      serve(row.key, 1);
      --row.answer;
    }
    std::erase_if(running_, [](const Row& row) { return row.answer == 0; });
  }

  [[nodiscard]] const Ids& started() const { return started_; }

 private:
  using Key = std::pair<int64_t, std::string>;  // priority and tenant
  struct Row {
    RequestId id = 0;
    Key key{};
    int64_t prompt = 0, answer = 0;
  };
  struct Account {
    double served = 0, weight = 1;
  };

  RequestId oldest(const Key& key) { return std::ranges::find(waiting_, key, &Row::key)->id; }
  /// Of those that wait, or else of the last that did.
  double least(int64_t priority) {
    std::vector<double> served;
    for (const Row& row : waiting_) {
      if (row.key.first == priority) served.push_back(accounts_.at(row.key).served);
    }
    return served.empty() ? accounts_[{priority, last_[priority]}].served
                          : std::ranges::min(served);
  }
  void serve(const Key& key, int64_t num_tokens) {
    accounts_.at(key).served += static_cast<double>(num_tokens) / accounts_.at(key).weight;
  }
  void forget_idle() {
    const auto has = [](const std::vector<Row>& rows, int64_t priority) {
      return std::ranges::any_of(rows, [=](const Row& row) { return row.key.first == priority; });
    };
    const auto is_idle = [&](int64_t priority) {
      return priority != 0 && !has(waiting_, priority) && !has(running_, priority);
    };
    std::erase_if(accounts_, [&](const auto& each) { return is_idle(each.first.first); });
    std::erase_if(last_, [&](const auto& each) { return is_idle(each.first); });
  }

  int64_t num_places_;
  RequestId next_id_ = 0;
  std::vector<Row> waiting_, running_;  // the first by the order of submission
  std::map<Key, Account> accounts_;
  std::map<int64_t, std::string> last_;
  Ids started_;
};

TEST(WaitingRows, OneTenantIsFirstComeFirstServed) {
  Load load(testing::random_int(1, 5));
  for (int i = 0; i < 300; ++i) {
    if (testing::random_int(0, 2) > 0) load.submit(random_job(""));
    load.step();
  }
  while (!load.rows().is_empty()) load.step();
  EXPECT_TRUE(std::ranges::is_sorted(load.started()));
  EXPECT_GT(load.started().size(), 100u);
}

/// Tenants come and go at random. In any time in which two of them wait, what they are served over
/// their weights differs by no more than the requests that run at once may cost each of them.
TEST(WaitingRows, TenantsThatWaitAreServedByTheirWeights) {
  for (int round = 0; round < 30; ++round) {
    const int64_t num_places = testing::random_int(1, 6);
    Load load(num_places);
    const auto num_tenants = static_cast<size_t>(testing::random_int(2, 6));
    std::vector<std::string> names;
    std::vector<double> weights;
    for (size_t i = 0; i < num_tenants; ++i) {
      names.push_back("t" + std::to_string(i));
      weights.push_back(testing::pick({0.25, 1.0, 2.0, 7.0}));
    }
    const auto share = [&](size_t i) { return load.served(names[i]) / weights[i]; };
    struct Together {
      bool is_on = false;
      double least = 0, most = 0;  // of the difference of their shares
    };
    std::map<std::pair<size_t, size_t>, Together> pairs;
    for (int step = 0; step < 2000; ++step) {
      for (size_t i = 0; i < num_tenants; ++i) {
        const bool has_burst = testing::random_int(0, 200) == 0;
        for (int64_t n = has_burst ? testing::random_int(1, 60) : 0; n > 0; --n) {
          load.submit(random_job(names[i]), weights[i]);
        }
      }
      load.step();
      for (size_t a = 0; a < num_tenants; ++a) {
        for (size_t b = a + 1; b < num_tenants; ++b) {
          Together& together = pairs[{a, b}];
          const double difference = share(a) - share(b);
          const bool are_on = load.waits(names[a]) && load.waits(names[b]);
          if (are_on && !together.is_on) together = {true, difference, difference};
          together.is_on = are_on;
          if (!are_on) continue;
          together.least = std::min(together.least, difference);
          together.most = std::max(together.most, difference);
          const double cost = static_cast<double>(2 * kLongest * num_places);
          ASSERT_LE(together.most - together.least, cost / weights[a] + cost / weights[b] + 1e-9)
              << "round " << round << ", step " << step;
        }
      }
    }
  }
}

/// With one place the bound is that of one request of each.
TEST(WaitingRows, ABurstHoldsUpAnotherTenantByOneRequest) {
  for (int round = 0; round < 50; ++round) {
    Load load(1);
    const int64_t num_bursts = testing::random_int(1, 5);
    for (int64_t i = 0; i < 200; ++i) {
      load.submit(random_job("burst " + std::to_string(testing::random_int(1, num_bursts))));
    }
    for (int64_t i = testing::random_int(0, 500); i > 0; --i) load.step();
    const size_t before = load.started().size();
    load.submit(random_job("late"));
    while (load.waits("late")) load.step();
    EXPECT_LE(load.started().size() - before, static_cast<size_t>(num_bursts) + 1);
  }
}

TEST(WaitingRows, NoPlaceIsFreeWhileRowsWaitAndATenantKeepsItsOrder) {
  for (int round = 0; round < 20; ++round) {
    const int64_t num_places = testing::random_int(1, 6);
    Load load(num_places);
    for (int step = 0; step < 300; ++step) {
      for (int64_t n = testing::random_int(0, 3); n > 0; --n) {
        load.submit(random_job(std::to_string(testing::random_int(0, 4))),
                    testing::pick({0.5, 1.0, 4.0}));
      }
      const size_t before = load.started().size();
      const int64_t num_waiting = load.rows().size(), num_free = num_places - load.num_running();
      load.step();
      ASSERT_GE(static_cast<int64_t>(load.started().size() - before),
                std::min(num_waiting, num_free));
    }
    while (!load.rows().is_empty()) load.step();
    std::map<std::string, RequestId> last;
    for (const RequestId id : load.started()) {
      const auto [place, is_first] = last.try_emplace(load.job(id).tenant, id);
      EXPECT_TRUE(is_first || place->second < id);
      place->second = id;
    }
  }
}

TEST(WaitingRows, TheOrderIsTheSameForTheSameRequests) {
  std::vector<std::pair<Load::Job, double>> jobs;
  for (int i = 0; i < 400; ++i) {
    jobs.emplace_back(random_job(std::to_string(testing::random_int(0, 9))),
                      testing::pick({0.1, 1.0, 3.0}));
  }
  const auto run = [&jobs] {
    Load load(3);
    for (const auto& [job, weight] : jobs) {
      load.submit(job, weight);
      load.step();
    }
    while (!load.rows().is_empty()) load.step();
    return load.started();
  };
  const Ids first = run();
  EXPECT_EQ(first.size(), jobs.size());
  EXPECT_EQ(run(), first);
}

/// What is listed is what starts, if all that is listed starts at once.
TEST(WaitingRows, ListsRowsInTheOrderInWhichTheyStart) {
  for (int round = 0; round < 30; ++round) {
    const int64_t num_rows = testing::random_int(1, kMaxScheduledRows);
    Load load(num_rows);
    for (int64_t i = 0; i < num_rows; ++i) {
      load.submit(random_job(std::to_string(testing::random_int(0, 20))),
                  testing::pick({0.5, 1.0, 2.0}));
    }
    Ids listed;
    for (const WaitingRows::Place place : load.rows().order()) listed.push_back(place->id);
    load.step();
    EXPECT_EQ(listed, load.started());
  }
}

TEST(WaitingRows, AnIdleTenantGainsNoCreditAndNobodyPaysForAnEngineOfItsOwn) {
  Load load(1);
  for (int i = 0; i < 100; ++i) load.submit({"busy", 10, 10});
  for (int i = 0; i < 500; ++i) load.step();
  const size_t before = load.started().size();
  for (int i = 0; i < 40; ++i) load.submit({"idle", 10, 10});
  while (load.started().size() < before + 20) load.step();
  int64_t num_idle = 0;
  for (size_t i = before; i < load.started().size(); ++i) {
    num_idle += load.job(load.started()[i]).tenant == "idle" ? 1 : 0;
  }
  EXPECT_GE(num_idle, 9) << "the other was served all the time before";
  EXPECT_LE(num_idle, 11) << "it has not saved up what it did not use";
}

/// A tenant of paused requests neither waits nor holds the others' account back.
TEST(WaitingRows, APausedRowIsNotInTheOrder) {
  WaitingRows rows;
  std::map<RequestId, Sequence*> by_id;
  const auto add = [&](RequestId id, const std::string& tenant) {
    Sequences one = RowQueue::make_row(id);
    one.front().request.prompt_tokens = 100;
    one.front().tenant = rows.tenant(tenant, 1);
    by_id[id] = &one.front();
    rows.add(one, one.begin());
  };
  const auto order = [&rows] {
    Ids ids;
    for (const WaitingRows::Place place : rows.order()) ids.push_back(place->id);
    return ids;
  };
  add(0, "a");
  add(1, "b");
  add(2, "b");
  rows.set_paused(*by_id[0], true);
  EXPECT_EQ(order(), (Ids{1, 2}));
  EXPECT_EQ(rows.size(), 3);
  rows.charge(*by_id[1], 1000);
  add(3, "c");
  EXPECT_EQ(order(), (Ids{1, 3, 2})) << "c is charged what b was, not what the paused a was";
  rows.set_paused(*by_id[0], false);
  EXPECT_EQ(order(), (Ids{0, 1, 3, 2})) << "nor has a saved anything up";
  rows.set_paused(*by_id[1], true);
  EXPECT_EQ(order(), (Ids{0, 2, 3}));
  Sequences ended;
  rows.move_to(ended, ended.end(), WaitingRows::place_of(*by_id[1]));
  EXPECT_EQ(order(), (Ids{0, 2, 3}));
  EXPECT_EQ(rows.size(), 3);
}

TEST(WaitingRows, TenantsWithoutRequestsAreForgottenUnlessTheyWereServedMore) {
  Load load(1);
  for (int i = 0; i < 5000; ++i) {
    load.submit({"t" + std::to_string(i), 1, 1});
    load.step();
  }
  EXPECT_LT(load.rows().num_tenants(), 200u);
  Load other(2);
  other.submit({"steady", 1, 1000000});
  other.submit({"steady", 1, 1});
  other.submit({"greedy", 1000, 1});  // which starts at once
  for (int i = 0; i < 3; ++i) other.step();
  other.submit({"steady", 1, 1});
  for (int i = 0; i < 300; ++i) {
    other.submit({"t" + std::to_string(i), 1, 1});
    other.step();
  }
  while (!other.rows().is_empty()) other.step();
  for (const char* const tenant : {"new", "greedy", "new"}) other.submit({tenant, 1, 1});
  Ids order;
  for (const WaitingRows::Place place : other.rows().order()) order.push_back(place->id);
  EXPECT_EQ(order, (Ids{304, 306, 305})) << "greedy is still ahead of the others";
}

TEST(WaitingRows, TheLowestPriorityIsNextAndEachHasSharesOfItsOwn) {
  int64_t num_late = 0;  // that started before one that came earlier
  for (int round = 0; round < 40; ++round) {
    const int64_t num_places = testing::random_int(1, 6);
    const int64_t most = testing::random_int(0, 3);
    Load load(num_places);
    PlainLoad plain(num_places);
    for (int step = 0; step < 300; ++step) {
      const bool has_burst = testing::random_int(0, 20) == 0;
      for (int64_t n = has_burst ? testing::random_int(1, 20) : 0; n > 0; --n) {
        Load::Job job = random_job(std::to_string(testing::random_int(0, 3)));
        job.priority = testing::random_int(-most, most);
        const double weight = testing::pick({0.5, 1.0, 4.0});
        load.submit(job, weight);
        plain.submit(job, weight);
      }
      load.step();
      plain.step();
      ASSERT_EQ(load.started(), plain.started()) << "round " << round << ", step " << step;
    }
    for (size_t i = 1; i < load.started().size(); ++i) {
      num_late += load.started()[i] < load.started()[i - 1] ? 1 : 0;
    }
  }
  EXPECT_GT(num_late, 100);
}

TEST(WaitingRows, ListsTheLowestPrioritiesOfMany) {
  for (int round = 0; round < 10; ++round) {
    Load load(1);
    std::vector<std::pair<int64_t, RequestId>> want;
    for (RequestId id = 0; id < 3 * std::ssize(Ids(kMaxScheduledRows)); ++id) {
      Load::Job job = random_job("");
      job.priority = testing::random_int(-1, 1) * testing::random_int(0, int64_t{1} << 62);
      want.emplace_back(job.priority, id);
      load.submit(job);
    }
    std::ranges::sort(want);
    const auto order = load.rows().order();
    ASSERT_EQ(order.size(), kMaxScheduledRows);
    for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i]->id, want[i].second) << i;
  }
}

TEST(WaitingRows, APriorityWithoutRequestsIsForgotten) {
  Load load(2);
  size_t most = 0;
  for (int i = 0; i < 5000; ++i) {
    Load::Job job = random_job("t" + std::to_string(i % 3));
    job.priority = 5000 - i;
    job.answer = 1;
    load.submit(job);
    load.step();
    most = std::max(most, load.rows().num_priorities());
  }
  EXPECT_LE(most, 5u) << "those of the requests that run, the next one's and 0";
}

}  // namespace
}  // namespace heddle
