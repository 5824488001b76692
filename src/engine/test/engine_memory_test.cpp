// Memory that runs out ends the rows that it concerns; the engine and all others go on.
#include <algorithm>
#include <new>

#include <gtest/gtest.h>

#include "engine/test/engine_cases.h"
#include "engine/test/model_files.h"
#include "engine/test/test_device.h"
#include "heap_count.h"

namespace heddle {
namespace {

using testing::endless_request;
using testing::FailingAllocation;

constexpr int kNumRows = 20, kMaxBatch = 4;
constexpr int64_t kNotSubmitted = -1;

EngineOptions options_for(const std::string& path) {
  return {.model_path = path,
          .device = testing::test_device(),
          .max_batch = kMaxBatch,
          .num_threads = 1,
          .page_size = 4,
          .prefill_chunk = 9,
          .kv_memory = 24 * 512,
          .kv_host_memory = 0};  // where a page that cannot be stored ends no row
}

/// Rows of all kinds: with adapters, drawn, with stop strings, refused.
std::vector<Request> requests_of_all_kinds() {
  std::vector<Request> requests;
  for (int i = 0; i < kNumRows; ++i) {
    std::vector<int32_t> prompt;
    for (int t = 0; t <= i % 7 * 2; ++t) prompt.push_back((5 * i + 7 * t) % 26);
    requests.push_back(endless_request(std::move(prompt), 2 + i % 4));
    Request& request = requests.back();
    if (i % 3 != 0) request.adapter = i % 3 == 1 ? "first" : "second";
    request.sampling = {.temperature = i % 2 == 0 ? 0.0f : 1.0f, .top_p = 0.9f, .seed = i};
    if (i % 6 == 1) request.sampling.frequency_penalty = 0.5f;
    if (i % 7 == 2) request.top_logprobs = 2, request.prompt_logprobs = true;
    if (i % 6 == 3) request.sampling.repetition_penalty = 1.5f;
    if (i % 8 == 5) request.bad_words = {"ab", "c"};
    if (i % 5 == 2) request.stop = {"e", "xyz"};
  }
  requests[2].stop = {"?!"};  // tokens are letters: it does not end before it is cancelled
  requests[7].sampling.top_p = 0.0f;
  requests[11].token_ids = std::nullopt;
  requests[11].text = "some text that is longer than a short string";
  return requests;
}

struct RunResult {
  std::vector<testing::Outcome> outcomes{kNumRows};
  std::vector<RequestId> ids;  // kNotSubmitted: submit threw
};

/// Submits all requests and runs them to their ends, one of them cancelled on the way. The
/// `countdown`th allocation in the engine fails; counts down.
RunResult run(Engine& engine, const std::vector<Request>& requests, int64_t& countdown) {
  RunResult result;
  for (const Request& request : requests) {
    RequestId id = kNotSubmitted;
    try {
      const FailingAllocation failing(countdown);
      id = engine.submit(request);
    } catch (const std::bad_alloc&) {
    }
    result.ids.push_back(id);
  }
  for (int num_steps = 0; engine.num_unfinished() > 0; ++num_steps) {
    std::vector<Event> events;
    try {
      const FailingAllocation failing(countdown);
      if (num_steps == 2 && result.ids[2] != kNotSubmitted) (void)engine.cancel(result.ids[2]);
      events = engine.step();
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(engine.load().num_running, 0) << "a step that throws has no row to end";
    }
    for (Event& event : events) {
      const auto row = std::ranges::find(result.ids, event.request) - result.ids.begin();
      event.request = row;
      testing::take({std::move(event)}, 0, result.outcomes);
    }
    if (num_steps > 200) {
      ADD_FAILURE() << "rows do not come to an end";
      break;
    }
  }
  return result;
}

/// Rows that ended otherwise than undisturbed, and have a reason; all others have the same bits.
int count_failed(const RunResult& got, const RunResult& want) {
  int num_failed = 0;
  for (size_t i = 0; i < kNumRows; ++i) {
    const testing::Outcome& outcome = got.outcomes[i];
    const Completion& completion = outcome.completion;
    const Completion& undisturbed = want.outcomes[i].completion;
    const std::string what = "row " + std::to_string(i);
    if (got.ids[i] == kNotSubmitted) {
      ++num_failed;
      EXPECT_EQ(outcome.num_completions, 0) << what;
      continue;
    }
    EXPECT_EQ(outcome.num_completions, 1) << what;
    EXPECT_EQ(outcome.streamed, completion.text) << what;
    if (undisturbed.finish_reason == FinishReason::kError) {
      // The sentence may be cut short for lack of memory, the row runs in no case.
      EXPECT_EQ(completion.finish_reason, FinishReason::kError) << what;
      num_failed += completion.error == undisturbed.error ? 0 : 1;
      continue;
    }
    if (completion.finish_reason != FinishReason::kError) {
      if (undisturbed.finish_reason != FinishReason::kCancelled) {
        testing::expect_same(completion, undisturbed, what);
      } else {
        EXPECT_EQ(completion.finish_reason, FinishReason::kCancelled) << what;
      }
      continue;
    }
    ++num_failed;
    EXPECT_NE(completion.error.find("out of memory"), std::string::npos) << completion.error;
    EXPECT_EQ(completion.error_code, RequestError::kOutOfMemory) << what;
    EXPECT_EQ(completion.logprobs.size(), completion.token_ids.size()) << what;
    EXPECT_TRUE(undisturbed.text.starts_with(completion.text)) << what;
  }
  return num_failed;
}

TEST(EngineMemory, EachAllocationOfARunMayFail) {
  testing::RandomModel model;
  Engine engine(options_for(model.path()));
  engine.add_adapter("first", model.adapter_folder("first", 3));
  engine.add_adapter("second", model.adapter_folder("second", 5));
  const std::vector<Request> requests = requests_of_all_kinds();
  int64_t never = 0;
  const RunResult undisturbed = run(engine, requests, never);
  const Request further = endless_request({3, 1, 4, 1, 5}, 6);
  const Completion wanted = testing::run_all(engine, {further}).front();
  EXPECT_EQ(undisturbed.outcomes[7].completion.finish_reason, FinishReason::kError);
  EXPECT_EQ(undisturbed.outcomes[2].completion.finish_reason, FinishReason::kCancelled);

  int64_t num_single = 0, n = 1;
  for (;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    int64_t countdown = n;
    const RunResult disturbed = run(engine, requests, countdown);
    const int num_failed = count_failed(disturbed, undisturbed);
    testing::expect_idle(engine);
    testing::expect_same(testing::run_all(engine, {further}).front(), wanted, "a further request");
    if (countdown > 0) {
      EXPECT_EQ(num_failed, 0) << "nothing failed";
      break;
    }
    EXPECT_GE(num_failed, 1);
    EXPECT_LE(num_failed, kMaxBatch);
    num_single += num_failed == 1 ? 1 : 0;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(n, 5 * kNumRows) << "few allocations were seen";
  EXPECT_GT(num_single, n * 8 / 10) << "a failure ends more rows than it concerns";
}

TEST(EngineMemory, EachAllocationOfTheEngineItselfMayFail) {
  const testing::RandomModel model;
  const EngineOptions options = options_for(model.path());
  int64_t num_failures = 0, countdown = 0;
  for (int64_t n = 1; countdown <= 0; ++n) {
    countdown = n;
    try {
      const FailingAllocation failing(countdown);
      const Engine engine(options);
    } catch (const std::exception&) {
      ++num_failures;
    }
  }
  EXPECT_GT(num_failures, 100) << "few allocations were seen";
}

TEST(EngineMemory, EachAllocationOfAnAdapterMayFailAndLeavesItsNameAndSlotFree) {
  testing::RandomModel model;
  Engine undisturbed(options_for(model.path())), engine(options_for(model.path()));
  const std::string folder = model.adapter_folder("folder", 3);
  undisturbed.add_adapter("a", folder);
  // A few failures do no harm, as of memory that a sort would like to have: an adapter for each.
  std::vector<std::string> names{"a"};
  int64_t num_failures = 0, countdown = 0;
  for (int64_t n = 1; countdown <= 0; ++n) {
    countdown = n;
    try {
      const FailingAllocation failing(countdown);
      (void)engine.add_adapter(names.back(), folder);
    } catch (const std::bad_alloc&) {
      ++num_failures;
      ASSERT_FALSE(engine.has_adapter(names.back())) << "allocation " << n;
      continue;
    }
    names.push_back(names.back() + "a");
  }
  names.pop_back();
  EXPECT_GT(num_failures, 100) << "few allocations were seen";
  Request request = endless_request({3, 1, 4, 1, 5}, 12);
  const auto logits_of = [&](Engine& of, const std::string& name) {
    request.adapter = name;
    return of.prompt_logits(request);
  };
  const std::vector<float> wanted = logits_of(undisturbed, "a");
  EXPECT_NE(wanted, logits_of(undisturbed, ""));
  EXPECT_EQ(logits_of(engine, ""), logits_of(undisturbed, ""));
  for (const std::string& name : names) EXPECT_EQ(logits_of(engine, name), wanted) << name;
}

}  // namespace
}  // namespace heddle
