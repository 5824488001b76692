// Requests that need more of a step than a plain one does: the others in the batch keep their bits,
// and on a GPU the step keeps its graph.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;

using testing::expect_same;
using testing::run_all;

struct Need {
  const char* name;
  std::function<void(Request&)> add;
};

std::ostream& operator<<(std::ostream& out, const Need& need) { return out << need.name; }

constexpr int64_t kAnswer = 12;

const std::vector<Need> kNeeds = {
    {"frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = 1.5f; }},
    {"presence_penalty", [](Request& r) { r.sampling.presence_penalty = 1.5f; }},
    {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 1.3f; }},
    {"logit_bias",
     [](Request& r) {
       r.logit_bias = {{7, 4.0f}, {9, -100.0f}};
     }},
    {"min_tokens",
     [](Request& r) {
       r.min_tokens = 9;
       for (int32_t token = 0; token < 128; ++token) r.stop_token_ids.push_back(token);
     }},
    {"bad_words",
     [](Request& r) {
       r.bad_words = {"a", "bc", "\x01\x02", "Z"};
     }},
    {"allowed_token_ids", [](Request& r) { r.allowed_token_ids = {3, 5, 8, 13, 21, 34}; }},
    {"top_logprobs", [](Request& r) { r.top_logprobs = 5; }},
    {"prompt_logprobs", [](Request& r) { r.prompt_logprobs = true; }},
    {"prompt_and_top_logprobs",
     [](Request& r) {
       r.prompt_logprobs = true;
       r.top_logprobs = 3;
       r.sampling.frequency_penalty = 0.5f;
     }},
    {"list",
     [](Request& r) {
       r.adapters = {{"one", 0.5f}, {"two", 1.25f}};
     }},
    {"list_and_penalty",
     [](Request& r) {
       r.adapters = {{"two", 1.0f}, {"one", 1.0f}};
       r.sampling.presence_penalty = 1.0f;
     }},
    {"own_vocabulary", [](Request& r) { r.adapter = "wide"; }},
    {"own_vocabulary_and_top_logprobs",
     [](Request& r) {
       r.adapter = "wide";
       r.top_logprobs = 2;
     }},
};

/// With all that is reported.
void expect_same_reports(const Completion& got, const Completion& want, const std::string& what) {
  expect_same(got, want, what);
  EXPECT_EQ(got.top_token_ids, want.top_token_ids) << what;
  EXPECT_TRUE(testing::same_bits<float>(got.top_logprobs, want.top_logprobs)) << what;
  EXPECT_EQ(got.prompt_top_token_ids, want.prompt_top_token_ids) << what;
  EXPECT_TRUE(testing::same_bits<float>(got.prompt_top_logprobs, want.prompt_top_logprobs)) << what;
  EXPECT_TRUE(testing::same_bits<float>(got.prompt_logprobs, want.prompt_logprobs)) << what;
}

class StepGraphsTest : public ::testing::TestWithParam<Need> {
 protected:
  Engine engine() {
    Engine engine = model_.engine({.max_batch = 6, .prefill_chunk = 5, .prefix_cache = false});
    for (const auto& [name, folder] : {std::pair("one", one_.folder.path()),
                                       {"two", two_.folder.path()},
                                       {"wide", wide_.folder.path()}}) {
      (void)engine.add_adapter(name, folder.string());
    }
    return engine;
  }

  static Request request(int32_t i) {
    Request request = testing::endless_request({i, 40 + i, 3, 90, 7 + 2 * i}, kAnswer);
    request.sampling.seed = i;
    if (i % 2 == 1) request.sampling.temperature = 1.5f;
    return request;
  }

  /// Three plain requests, and two that need it.
  static std::vector<Request> requests() {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 5; ++i) {
      requests.push_back(request(i));
      if (i == 1 || i == 4) GetParam().add(requests.back());
      if (i == 2) requests.back().adapter = "one";
    }
    return requests;
  }

 private:
  Llama base_ = model::random_llama(testing::tiny_config(), true);
  testing::TinyModel model_{base_};
  testing::TinyAdapter one_{base_, 3, {llama::kQ, llama::kDown}};
  testing::TinyAdapter two_{base_, 2, {llama::kQ, llama::kV, llama::kUp}};
  testing::WideAdapter wide_{base_, 300};
};

INSTANTIATE_TEST_SUITE_P(Requests, StepGraphsTest, ::testing::ValuesIn(kNeeds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(StepGraphsTest, AnswersAreThoseOfEachRequestAlone) {
  Engine together = engine();
  for (int round = 0; round < 2; ++round) {  // as calls and as graphs
    const std::vector<Completion> answers = run_all(together, requests());
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(answers[i].error, "");
      Engine alone = engine();
      expect_same_reports(answers[i], run_all(alone, {requests()[i]}).front(),
                          "request " + std::to_string(i));
    }
  }
}

TEST_P(StepGraphsTest, StepsOverlapAndAreRecordedOnAGpu) {
  Engine alone = engine();
  Request request = StepGraphsTest::request(1);
  GetParam().add(request);
  ASSERT_EQ(run_all(alone, {request}).front().error, "");
  EXPECT_EQ(alone.stats().graphs, testing::is_on_cpu() ? 0 : 1) << "of one size";
  EXPECT_EQ(alone.stats().graph_seconds > 0, !testing::is_on_cpu());
  EXPECT_EQ(alone.stats().device_seconds > 0, !testing::is_on_cpu());
}

/// What ends in the step before the one that waits for it.
TEST_P(StepGraphsTest, ARequestMayEndOrBeCancelledWhileItsNextStepIsInFlight) {
  Engine engine = StepGraphsTest::engine();
  std::vector<Request> all = requests();
  for (size_t i = 0; i < all.size(); ++i) all[i].max_tokens = 4 + static_cast<int64_t>(i);
  all[1].min_tokens = std::min(all[1].min_tokens, all[1].max_tokens);
  all[4].min_tokens = std::min(all[4].min_tokens, all[4].max_tokens);
  const std::vector<Completion> whole = run_all(engine, all);
  std::vector<RequestId> ids;
  for (const Request& request : all) ids.push_back(engine.submit(request));
  std::vector<testing::Outcome> outcomes(all.size());
  for (int step = 0; engine.num_unfinished() > 0; ++step) {
    testing::take(engine.step(), ids.front(), outcomes);
    if (step == 3) {
      EXPECT_TRUE(engine.cancel(ids[4]));
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    expect_same_reports(outcomes[i].completion, whole[i], "request " + std::to_string(i));
  }
  EXPECT_EQ(outcomes[4].completion.finish_reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace heddle
