#include <string>
#include <utility>

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

}  // namespace
}  // namespace heddle
