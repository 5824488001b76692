// Adapters that are replaced under requests that run, and versions of a name, through C.
#include <future>
#include <string>

#include <gtest/gtest.h>

#include "heddle/c_engine.h"

#include "engine/bindings/test/c_engine_case.h"
#include "engine/test/engine_cases.h"

namespace heddle {
namespace {

using testing::Answer, testing::c_string, testing::CEngine, testing::expect_failure, testing::take;

TEST_F(CEngine, ARequestGoesOnWithOtherWeightsAndANameGoesBack) {
  ASSERT_EQ(heddle_engine_keep_versions(engine, c_string(name), 1), HEDDLE_OK);
  struct Told {
    heddle_engine* engine;
    heddle_string name, folder;
    Answer answer{};
    int num_events = 0;
    std::promise<void> end{};
  } told{.engine = engine, .name = c_string(name), .folder = c_string(second)};
  const Request request = testing::endless_request({1, 2, 3, 4, 5, 6}, 40);
  heddle_engine_request called = c_request(request);
  called.adapter = c_string(name);
  called.user_data = &told;
  called.on_event = [](void* data, const heddle_engine_event* event) {
    Told& to = *static_cast<Told*>(data);
    take(*event, to.answer);
    if (event->finish_reason != HEDDLE_FINISH_NONE) return to.end.set_value();
    if (++to.num_events != 3) return;
    EXPECT_EQ(heddle_engine_switch_adapter(to.engine, to.name, to.folder), HEDDLE_OK);
  };
  (void)submit(called);
  told.end.get_future().wait();
  ASSERT_EQ(told.answer.completion.adapter_switches.size(), 1u);
  const AdapterSwitch& place = told.answer.completion.adapter_switches[0];
  EXPECT_GE(place.token, 3);
  EXPECT_EQ(place.position, place.token + 5);
  EXPECT_FALSE(told.answer.completion.earlier_digests.empty());
  ASSERT_EQ(heddle_engine_roll_back_adapter(engine, c_string(name), 1, false), HEDDLE_OK);
  expect_failure("has no older version 1",
                 heddle_engine_roll_back_adapter(engine, c_string(name), 1, true));
  expect_failure("keep_versions is -1", heddle_engine_keep_versions(engine, c_string(name), -1));
}

}  // namespace
}  // namespace heddle
