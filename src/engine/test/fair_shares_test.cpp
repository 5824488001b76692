// Tenants that share an engine: whose requests start first, and that no bit of an answer shows it.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace llama = model::llama;

class FairShares : public ::testing::Test {
 protected:
  Engine engine_with(const std::string& fairness, int max_batch = 2) {
    Engine made = model.engine({.max_batch = max_batch, .page_size = 4, .fairness = fairness});
    (void)made.add_adapter("a", a.folder.path().string());
    (void)made.add_adapter("b", b.folder.path().string());
    return made;
  }

  /// The requests in the order of their ends.
  static std::vector<RequestId> ends(Engine& engine) {
    std::vector<RequestId> ended;
    for (int i = 0; engine.num_unfinished() > 0 && i < testing::kTooManySteps; ++i) {
      for (const Event& event : engine.step()) {
        if (event.completion) ended.push_back(event.request);
      }
    }
    testing::expect_idle(engine);
    return ended;
  }
  static int64_t place_of(const std::vector<RequestId>& ended, RequestId id) {
    return std::ranges::find(ended, id) - ended.begin();
  }

  model::ref::Llama base = model::random_llama(testing::tiny_config(), true);
  testing::TinyAdapter a{base, 3, {llama::kQ, llama::kV}};
  testing::TinyAdapter b{base, 2, {llama::kUp}};
  testing::TinyModel model{base};
};

TEST_F(FairShares, ALateRequestOfAnotherTenantNeedNotWaitForABurst) {
  for (const std::string fairness : {"", "off", "adapter", "tenant"}) {
    Engine engine = engine_with(fairness);
    for (int i = 0; i < 20; ++i) {
      Request row = testing::endless_request(testing::random_tokens(3), 4);
      if (fairness == "tenant") row.tenant = "burst";
      row.adapter = "a";
      (void)engine.submit(row);
    }
    Request late = testing::endless_request(testing::random_tokens(3), 4);
    if (fairness == "tenant") late.tenant = "late";
    late.adapter = fairness == "adapter" ? "b" : "a";
    const RequestId id = engine.submit(late);
    const bool is_fair = fairness == "adapter" || fairness == "tenant";
    EXPECT_EQ(engine.options().fairness, fairness.empty() ? "off" : fairness);
    const int64_t place = place_of(ends(engine), id);
    EXPECT_EQ(place >= 4, !is_fair) << fairness << ": " << place;
  }
}

TEST_F(FairShares, AHeavyTenantEndsFirst) {
  Engine engine = engine_with("tenant", 1);
  std::vector<RequestId> heavy;
  for (int i = 0; i < 30; ++i) {
    Request row = testing::endless_request(testing::random_tokens(3), 5);
    row.tenant = i % 2 == 0 ? "light" : "heavy";
    row.tenant_weight = i % 2 == 0 ? 0.5 : 2;
    const RequestId id = engine.submit(row);
    if (i % 2 == 1) heavy.push_back(id);
  }
  const std::vector<RequestId> ended = ends(engine);
  const int64_t num_before = place_of(ended, heavy.back()) - 14;  // light ones
  EXPECT_GE(num_before, 3);
  EXPECT_LE(num_before, 5) << "a quarter of 15";
}

TEST_F(FairShares, AnswersAreTheSameBitForBit) {
  std::vector<Request> rows;
  for (int i = 0; i < 24; ++i) {
    Request row = testing::endless_request(testing::random_tokens(testing::random_int(1, 30)),
                                           testing::random_int(1, 12));
    row.sampling = {.temperature = 0.8f, .seed = i};
    row.adapter = testing::pick<std::string>({"", "a", "b"});
    rows.push_back(row);
  }
  Engine off = engine_with("off", 3);
  const std::vector<Completion> want = testing::run_all(off, rows);
  for (const std::string fairness : {"adapter", "tenant"}) {
    Engine engine = engine_with(fairness, 3);
    for (Request& row : rows) {
      if (fairness == "tenant") row.tenant = std::to_string(testing::random_int(0, 3));
      row.tenant_weight = testing::pick({0.5, 1.0, 20.0});
      row.priority = testing::random_int(-1, 1);
    }
    const std::vector<Completion> got = testing::run_all(engine, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      testing::expect_same(got[i], want[i], fairness + ", row " + std::to_string(i));
    }
  }
}

TEST_F(FairShares, TheLowestPriorityEndsFirstWhoeversItIs) {
  for (const std::string fairness : {"off", "adapter", "tenant"}) {
    Engine engine = engine_with(fairness, 1);
    std::vector<RequestId> want;
    for (const int64_t priority : {0, 7, -3, 7, 0, -3}) {
      Request row = testing::endless_request(testing::random_tokens(3), 4);
      row.priority = priority;
      row.adapter = testing::pick<std::string>({"", "a", "b"});
      want.push_back(engine.submit(row));
    }
    const std::vector<RequestId> late = engine.submit_each(
        [] {
          Request row = testing::endless_request(testing::random_tokens(3), 4);
          row.priority = std::numeric_limits<int64_t>::min();
          return row;
        }(),
        {{}, {{{"a"}}}});
    const std::vector<RequestId> ended = ends(engine);
    const auto place = [&](size_t i) { return place_of(ended, want[i]); };
    EXPECT_LT(std::max(place_of(ended, late[0]), place_of(ended, late[1])), 2) << fairness;
    EXPECT_LT(std::max(place(2), place(5)), 4) << fairness;
    EXPECT_LT(std::max(place(0), place(4)), 6) << fairness;
    EXPECT_EQ(ended.size(), 8u);
  }
}

/// Where pages run out, too, and whatever the priorities are.
TEST_F(FairShares, NoBitOfAnAnswerDependsOnItsPriority) {
  std::vector<Request> rows;
  for (int i = 0; i < 12; ++i) {
    Request row = testing::endless_request(testing::random_tokens(testing::random_int(4, 15)), 40);
    row.sampling = {.temperature = 0.8f, .seed = i};
    row.adapter = testing::pick<std::string>({"", "a", "b"});
    rows.push_back(row);
  }
  Engine off = engine_with("off", 6);
  const std::vector<Completion> want = testing::run_all(off, rows);
  for (Request& row : rows) row.priority = testing::random_int(-3, 3);
  const int64_t few = 18 * (off.options().kv_memory / off.load().num_pages);
  Engine small = model.engine({.max_batch = 6, .page_size = 4, .kv_memory = few});
  (void)small.add_adapter("a", a.folder.path().string());
  (void)small.add_adapter("b", b.folder.path().string());
  const std::vector<Completion> got = testing::run_all(small, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    testing::expect_same(got[i], want[i], "row " + std::to_string(i));
  }
  EXPECT_GT(small.stats().parkings, 0);
}

/// Rows of one request are each charged to the tenant of their adapter, or to the request's.
TEST_F(FairShares, RowsOfOneRequestTakeTheShareOfTheirAdapter) {
  Engine engine = engine_with("adapter", 1);
  const Request row = testing::endless_request(testing::random_tokens(5), 3);
  std::vector<RequestVariant> each(8, {{{"a"}}});
  const std::vector<RequestId> burst = engine.submit_each(row, each);
  const std::vector<RequestId> late = engine.submit_each(row, {{{{"b"}}}, {{{"b"}}}});
  const std::vector<RequestId> ended = ends(engine);
  EXPECT_EQ(ended.size(), 10u);
  EXPECT_LE(place_of(ended, late.back()), 4);
}

TEST_F(FairShares, WhatHasNoEffectIsRefused) {
  Request row = testing::endless_request({1, 2}, 1);
  row.tenant = "me";
  Engine off = engine_with("off"), by_adapter = engine_with("adapter");
  testing::expect_invalid({"tenant is 'me', but tenants do not share the engine"},
                          [&] { off.check(row); });
  testing::expect_invalid({"tenant is 'me', but tenants do not share the engine"},
                          [&] { by_adapter.check(row); });
  row.tenant.clear();
  row.tenant_weight = 2;
  testing::expect_invalid({"tenant_weight is 2, but there are no shares"}, [&] { off.check(row); });
  by_adapter.check(row);
  for (const double weight : {0.0, -1.0, 2e3, std::nan("")}) {
    row.tenant_weight = weight;
    testing::expect_invalid({"expected 0.001 to 1000"}, [&] { by_adapter.check(row); });
  }
  row.tenant_weight = 1;
  row.tenant = std::string(257, 'x');
  testing::expect_invalid({"tenant has 257 bytes, expected at most 256"},
                          [&] { engine_with("tenant").check(row); });
  testing::expect_invalid({"fairness is 'fair', expected off, adapter or tenant"},
                          [&] { engine_with("fair"); });
}

}  // namespace
}  // namespace heddle
