#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_engine.h"

#include "engine/bindings/test/c_engine_case.h"
#include "engine/test/engine_cases.h"

namespace heddle {
namespace {

using testing::c_string;
using testing::CEngine;
using testing::expect_failure;

TEST_F(CEngine, TenantsShareIt) {
  heddle_engine_options options = small_options();
  EXPECT_EQ(options.fairness.data, nullptr);
  Request request = testing::endless_request({1, 2, 3}, 2);
  EXPECT_EQ(c_request(request).tenant_weight, 1);
  request.tenant = "reports";
  heddle_engine_request mine = c_request(request);
  const int64_t refused = submit(mine);
  EXPECT_NE(poll(1).at(refused).completion.error.find("tenant is 'reports', but"),
            std::string::npos);
  const std::string tenant = "tenant", wrong = "fair";
  options.fairness = c_string(tenant);
  heddle_engine* other = nullptr;
  ASSERT_EQ(heddle_engine_create(&other, c_string(path), &options), HEDDLE_OK);
  std::swap(engine, other);
  for (const double weight : {0.5, 0.0}) {
    request.tenant_weight = weight;
    mine = c_request(request);
    const int64_t id = submit(mine);
    EXPECT_EQ(poll(1).at(id).completion.error.empty(), weight > 0);
  }
  std::swap(engine, other);
  heddle_engine_destroy(other);
  options.fairness = c_string(wrong);
  expect_failure("fairness is 'fair', expected off, adapter or tenant",
                 heddle_engine_create(&other, c_string(path), &options));
}

/// Submits others when its request has its first event, and notes who ends.
struct Submitter {
  heddle_engine* engine = nullptr;
  std::vector<heddle_engine_request> then{};
  std::vector<int64_t> ids{}, ended{};

  static void on_event(void* user_data, const heddle_engine_event* event) {
    auto& self = *static_cast<Submitter*>(user_data);
    for (heddle_engine_request& each : std::exchange(self.then, {})) {
      EXPECT_EQ(heddle_engine_submit(self.engine, &each, &self.ids.emplace_back()), HEDDLE_OK);
    }
    if (event->finish_reason != HEDDLE_FINISH_NONE) self.ended.push_back(event->request);
  }
};

TEST_F(CEngine, TheLowestPriorityStartsFirst) {
  heddle_engine_options options = small_options();
  options.max_batch = 1;
  heddle_engine* one = nullptr;
  ASSERT_EQ(heddle_engine_create(&one, c_string(path), &options), HEDDLE_OK);
  Submitter submitter{.engine = one};
  const Request request = testing::endless_request({1, 2, 3}, 3);
  heddle_engine_request first = c_request(request);
  EXPECT_EQ(first.priority, 0);
  first.on_event = Submitter::on_event;
  first.user_data = &submitter;
  for (const int64_t priority : {int64_t{4}, int64_t{-4}, int64_t{0}}) {
    submitter.then.push_back(first);
    submitter.then.back().priority = priority;
  }
  int64_t id = -1;
  std::swap(engine, one);
  id = submit(first);
  heddle_engine_load load{};
  do {
    ASSERT_EQ(heddle_engine_get_load(engine, &load), HEDDLE_OK);
  } while (load.num_running + load.num_waiting > 0);
  std::swap(engine, one);
  heddle_engine_destroy(one);  // its thread has ended, so no callback runs
  ASSERT_EQ(submitter.ids.size(), 3u);
  EXPECT_EQ(submitter.ended,
            (std::vector<int64_t>{id, submitter.ids[1], submitter.ids[2], submitter.ids[0]}));
}

}  // namespace
}  // namespace heddle
