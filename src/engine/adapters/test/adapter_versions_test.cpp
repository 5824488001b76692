// Older versions of an adapter's name: Engine::keep_versions, NAME@VERSION, roll_back_adapter.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using testing::TinyAdapter;

class AdapterVersions : public ::testing::Test {
 protected:
  /// The answer to `prompt` of the adapter that the name stands for.
  Completion answer(const std::string& name) {
    return testing::run_all(engine, {request_of(name)}).front();
  }
  Request request_of(const std::string& name) const {
    Request request = testing::endless_request(prompt, 8);
    request.adapter = name;
    return request;
  }
  static std::string path_of(const TinyAdapter& adapter) { return adapter.folder.path().string(); }
  void expect_versions(const std::vector<std::string>& names) {
    std::vector<std::string> known;
    for (const AdapterState& state : engine.adapter_states()) {
      EXPECT_TRUE(state.is_in_memory && state.is_added) << state.name;
      known.push_back(state.name);
    }
    EXPECT_EQ(known, names);
    EXPECT_EQ(engine.load().num_adapters, std::ssize(names));
  }

  model::ref::Llama base = model::random_llama(testing::tiny_config(), true);
  TinyAdapter adapters[4] = {{base, 3, {llama::kQ, llama::kUp}},
                             {base, 20, {llama::kV, llama::kDown}},
                             {base, 2, {llama::kK, llama::kO}},
                             {base, 4, {llama::kGate}}};
  std::vector<int32_t> prompt = testing::random_tokens(9);
  testing::TinyModel model{base};
  Engine engine = model.engine({.max_batch = 2, .prefix_cache = false});
};

TEST_F(AdapterVersions, SoManyStayAsAreToBeKept) {
  engine.keep_versions("a", 2);
  std::vector<Completion> of;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(engine.replace_adapter("a", path_of(adapters[i])).version, i + 1);
    of.push_back(answer("a"));
  }
  EXPECT_NE(of[0].logprobs, of[3].logprobs);
  expect_versions({"a", "a@2", "a@3"});
  for (int version = 2; version <= 4; ++version) {
    testing::expect_same(answer("a@" + std::to_string(version)), of[size_t(version) - 1],
                         "by name");
  }
  for (const char* name : {"a@1", "a@5", "a@02", "a@", "a@x", "@3"}) {
    EXPECT_EQ(answer(name).error_code, RequestError::kUnknownAdapter) << name;
  }
  engine.keep_versions("a", 1);
  expect_versions({"a", "a@3"});
  (void)engine.replace_adapter("a", path_of(adapters[0]));
  expect_versions({"a", "a@4"});
  EXPECT_TRUE(engine.remove_adapter("a"));
  expect_versions({});
  EXPECT_EQ(engine.add_adapter("a", path_of(adapters[1])).version, 1) << "another adapter";
  (void)engine.replace_adapter("a", path_of(adapters[2]));
  expect_versions({"a"});
}

TEST_F(AdapterVersions, ANameGoesBackAndForth) {
  engine.keep_versions("a", 3);
  std::vector<Completion> of;
  for (const TinyAdapter& adapter : adapters) {
    (void)engine.replace_adapter("a", path_of(adapter));
    of.push_back(answer("a"));
  }
  for (const int version : {2, 4, 1, 3, 1}) {
    engine.roll_back_adapter("a", version);
    testing::expect_same(answer("a"), of[size_t(version) - 1],
                         "version " + std::to_string(version));
    EXPECT_EQ(engine.load().num_adapters, 4);
  }
  testing::expect_invalid({"adapter \"a\" has no older version 1", "it has 2, 3, 4"},
                          [&] { engine.roll_back_adapter("a", 1); });
  testing::expect_invalid({"adapter \"b\" has no older version 1", "none"},
                          [&] { engine.roll_back_adapter("b", 1); });
  EXPECT_EQ(engine.replace_adapter("a", path_of(adapters[0])).version, 5)
      << "no number comes again";
}

TEST_F(AdapterVersions, RequestsFinishOrSwitchAsWithAnyOther) {
  engine.keep_versions("a", 1);
  (void)engine.add_adapter("a", path_of(adapters[0]));
  const Completion first = answer("a");
  (void)engine.replace_adapter("a", path_of(adapters[1]));
  const Completion second = answer("a");
  for (const RunningRequests running : {RunningRequests::kFinish, RunningRequests::kSwitch}) {
    const RequestId id = engine.submit(request_of("a"));
    std::vector<testing::Outcome> outcomes(1);
    for (int i = 0; i < 3; ++i) testing::take(engine.step(), id, outcomes);
    const bool is_finish = running == RunningRequests::kFinish;
    engine.roll_back_adapter("a", is_finish ? 1 : 2, running);
    while (engine.num_unfinished() > 0) testing::take(engine.step(), id, outcomes);
    const Completion& got = outcomes[0].completion;
    EXPECT_EQ(got.adapter_switches.size(), is_finish ? 0u : 1u);
    if (is_finish) {
      testing::expect_same(got, second, "as it began");
    } else {
      EXPECT_NE(got.logprobs, first.logprobs);
    }
  }
}

/// Of what is kept, what was used longest ago goes where memory is missing.
TEST_F(AdapterVersions, WhatIsKeptMakesRoomForMore) {
  (void)engine.add_adapter("a", path_of(adapters[0]));
  const int64_t bytes = engine.adapter_states().front().num_bytes;
  engine = model.engine({.max_batch = 2, .prefix_cache = false, .adapter_memory = 3 * bytes});
  engine.keep_versions("a", 5);
  for (int i = 0; i < 3; ++i) (void)engine.replace_adapter("a", path_of(adapters[0]));
  expect_versions({"a", "a@1", "a@2"});
  (void)answer("a@1");
  (void)engine.replace_adapter("a", path_of(adapters[0]));
  expect_versions({"a", "a@1", "a@3"});
}

TEST_F(AdapterVersions, WrongNumbersAreRefused) {
  for (const int count : {-1, kMaxKeptVersions + 1}) {
    testing::expect_invalid({"keep_versions is", "expected 0 to 64"},
                            [&] { engine.keep_versions("a", count); });
  }
}

}  // namespace
}  // namespace heddle
