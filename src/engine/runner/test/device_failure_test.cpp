// What happens to requests and engine where a step fails.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/elementwise.h"

#include "core/device_bytes.h"
#include "engine/face/made_engine.h"
#include "engine/test/engine_cases.h"
#include "engine/test/test_device.h"
#include "engine/thread/engine_thread.h"
#include "expect_error.h"

namespace heddle {
namespace {

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
  "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
  "vocab_size": 300, "max_position_embeddings": 64, "rms_norm_eps": 1e-06})";
constexpr int kMaxBatch = 3, kFailedStep = 6;
constexpr const char* kBegin = "the engine has ended: ";

Engine made(BeforeCompute hook) {
  return make_engine(kModel, 1,
                     {.device = testing::test_device(),
                      .max_batch = kMaxBatch,
                      .num_threads = 2,
                      .page_size = 4,
                      .prefill_chunk = 7},
                     std::move(hook));
}

/// More requests than run at once. With a penalty steps draw when the ones before were collected.
std::vector<Request> some_requests(bool has_penalty) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(testing::endless_request({i, 3, 40 + i}, 20));
    if (has_penalty) requests.back().sampling.repetition_penalty = 1.1f;
  }
  return requests;
}

/// Calls fail(ctx) before one step.
template <class Fail>
BeforeCompute failing(const Fail& fail) {
  return [fail, num_steps = 0](const ExecContext& ctx) mutable {
    if (++num_steps == kFailedStep) fail(ctx);
  };
}

void scale_nothing(const ExecContext& ctx, int64_t num_rows) {
  auto* const nowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 20);
  scale(ctx, TensorView(nowhere, DType::kFloat32, ctx.device, {num_rows, 64}), 2.0f);
}

/// A device that refuses a call: a GPU does so where a grid has more blocks than it takes.
void refused(const ExecContext& ctx) {
  if (ctx.device.type == DeviceType::kCpu) throw_error(ErrorCode::kCuda, "scale: refused");
  scale_nothing(ctx, int64_t{3} << 30);
}

/// A copy that is refused: no operation is to blame.
void refused_copy(const ExecContext& ctx) {
  const std::array<std::byte, 64> values{};
  begin_copy_from_host(ctx, reinterpret_cast<std::byte*>(uintptr_t{64}), values);
}

/// A kernel that writes where there is no memory: the call succeeds, the device fails later.
void lost(const ExecContext& ctx) { scale_nothing(ctx, 1); }

class DeviceFailure : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Steps, DeviceFailure, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "with_penalty" : "plain");
});

TEST_P(DeviceFailure, EndsTheEngineAndAnswersEveryRequest) {
  const std::vector<Request> requests = some_requests(GetParam());
  Engine engine = made(failing(refused));
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  const std::string device = engine.options().device;
  const std::string& sentence = answers.front().error;
  EXPECT_TRUE(sentence.starts_with(kBegin + device + " failed in a step of 3 rows")) << sentence;
  EXPECT_NE(sentence.find(" tokens of prompts: scale: "), std::string::npos) << sentence;
  if (!testing::is_on_cpu()) {
    EXPECT_NE(sentence.find("cudaErrorInvalid"), std::string::npos) << sentence;
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].finish_reason, FinishReason::kError) << i;
    EXPECT_EQ(answers[i].error, sentence) << i;
    EXPECT_EQ(answers[i].error_code, RequestError::kEngineEnded) << i;
    EXPECT_EQ(answers[i].token_ids.empty(), i >= kMaxBatch) << "what was drawn is reported";
  }
  const Completion later = testing::run_all(engine, {requests.front()}).front();
  EXPECT_EQ(later.error, sentence);
  EXPECT_EQ(later.error_code, RequestError::kEngineEnded);
  EXPECT_EQ(engine.ended_by(), sentence);
  testing::expect_error(ErrorCode::kCuda, {kBegin}, [&] { engine.check(requests.front()); });
}

TEST_P(DeviceFailure, AnyOtherFailureEndsTheRowsOfItsStepAlone) {
  const std::vector<Request> requests = some_requests(GetParam());
  Engine calm = made({});
  const std::vector<Completion> wanted = testing::run_all(calm, requests);
  struct Failure {
    void (*fail)(const ExecContext& ctx);
    RequestError code;
    const char* sentence;
  };
  constexpr Failure kFailures[] = {
      {[](const ExecContext&) { throw_error(ErrorCode::kOutOfMemory, "no memory for a step"); },
       RequestError::kOutOfMemory, "no memory for a step"},
      {[](const ExecContext&) { throw_error(ErrorCode::kUnsupported, "no such product"); },
       RequestError::kUnsupported, "no such product"},
      {[](const ExecContext&) { throw std::bad_alloc(); }, RequestError::kOutOfMemory,
       "out of memory: the row could not go on"},
      {[](const ExecContext&) { throw std::runtime_error("no Error"); },
       RequestError::kInvalidArgument, "no Error"}};
  for (const auto& [fail, code, sentence] : kFailures) {
    Engine engine = made(failing(fail));
    const std::vector<Completion> answers = testing::run_all(engine, requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      if (i < kMaxBatch) {
        EXPECT_EQ(answers[i].error, sentence);
        EXPECT_EQ(answers[i].error_code, code) << sentence;
      } else {
        testing::expect_same(answers[i], wanted[i], "request " + std::to_string(i));
      }
    }
  }
}

/// A chunk holds 7 tokens of prompts: a step that prefills the first row's has none of the others,
/// which are in the batch and wait for their turn.
TEST_P(DeviceFailure, RowsThatHadNoPartInTheFailedStepGoOn) {
  std::vector<Request> requests;
  for (int i = 0; i < kMaxBatch; ++i) {
    requests.push_back(testing::endless_request(std::vector<int32_t>(14, 5 + i), 9));
    if (GetParam()) requests.back().sampling.repetition_penalty = 1.1f;
  }
  Engine calm = made({});
  const std::vector<Completion> wanted = testing::run_all(calm, requests);
  for (const int failed_step : {1, 2}) {
    Engine engine = made([failed_step, num_steps = 0](const ExecContext&) mutable {
      if (++num_steps == failed_step) throw_error(ErrorCode::kUnsupported, "no such product");
    });
    const std::vector<Completion> answers = testing::run_all(engine, requests);
    EXPECT_EQ(answers[0].error, "no such product");
    EXPECT_EQ(answers[0].error_code, RequestError::kUnsupported);
    for (size_t i = 1; i < answers.size(); ++i) {
      testing::expect_same(answers[i], wanted[i], "request " + std::to_string(i));
      EXPECT_EQ(answers[i].finish_reason, FinishReason::kLength);
    }
  }
}

TEST_P(DeviceFailure, TheThreadOfTheEngineReportsItsEndOnce) {
  std::vector<std::string> reported;  // by the thread, which has ended before they are read
  const auto sink = std::make_shared<EventQueue>();
  {
    EngineThread thread(made(failing(refused)),
                        [&](const std::string& ended_by) { reported.push_back(ended_by); });
    for (int round = 0; round < 2; ++round) {
      for (const Request& request : some_requests(GetParam())) {
        (void)thread.submit(request, sink);
      }
      while (sink->num_unfinished() > 0) {
        const auto event = sink->next(EventQueue::Clock::now() + std::chrono::minutes(1));
        ASSERT_TRUE(event);
        if (!event->completion) continue;
        EXPECT_TRUE(event->completion->error.starts_with(kBegin)) << event->completion->error;
      }
    }
  }
  ASSERT_EQ(reported.size(), 1);
  EXPECT_TRUE(reported.front().starts_with(kBegin)) << reported.front();
}

TEST(RefusedCopy, NamesNoOperation) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "of a GPU";
  Engine engine = made(failing(refused_copy));
  const std::string error = testing::run_all(engine, some_requests(false)).front().error;
  EXPECT_NE(error.find(" tokens of prompts: cudaMemcpy"), std::string::npos) << error;
  EXPECT_NE(error.find("cudaErrorInvalidValue"), std::string::npos) << error;
}

/// In a process of its own, which it may leave as if nothing had been.
[[noreturn]] void run_on_a_lost_device() {
  {
    Engine engine = made(failing(lost));
    for (const Completion& answer : testing::run_all(engine, some_requests(false))) {
      std::fprintf(stderr, "%s\n", answer.error.c_str());
      if (!answer.error.starts_with(kBegin)) std::exit(1);
    }
  }
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(LostDevice, AKernelThatLeavesItsMemoryEndsTheEngine) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "of a GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_on_a_lost_device(), ::testing::ExitedWithCode(0),
              "failed in a step of 3 rows and [0-9]+ tokens of prompts: cuda.*"
              "cudaErrorIllegalAddress.*; an operation before this call has failed");
}

TEST(LostDevice, WhereLaunchesBlockTheKernelsOperationIsNamed) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "of a GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* kBlocks = "CUDA_LAUNCH_BLOCKING";
  ASSERT_EQ(setenv(kBlocks, "1", 1), 0);  // for the process that is begun
  EXPECT_EXIT(run_on_a_lost_device(), ::testing::ExitedWithCode(0),
              "tokens of prompts: scale: cuda.*cudaErrorIllegalAddress [^;]*\n");
  unsetenv(kBlocks);
}

TEST(EngineRoom, WhatDoesNotFitIsNamedWithItsOption) {
  constexpr const char* kLongModel =
      R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
          "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 300, "max_position_embeddings": 1073741824, "rms_norm_eps": 1e-06})";
  testing::expect_error(ErrorCode::kOutOfMemory,
                        {"no room for the KV cache: cannot get ", " bytes of memory on ",
                         "less is needed with a smaller kv_memory (--kv-memory)"},
                        [&] {
                          (void)make_engine(kLongModel, 1,
                                            {.device = testing::test_device(),
                                             .max_batch = 65536,
                                             .page_size = 65536,
                                             .kv_memory = int64_t{1} << 50});
                        });
  testing::expect_invalid({"kv_memory is 100 bytes, expected at least a page of 16 tokens"}, [&] {
    (void)make_engine(kModel, 1, {.device = testing::test_device(), .kv_memory = 100});
  });
}

/// On a GPU no product takes so many rows: the engine makes two steps of them.
TEST(EngineRoom, AChunkMayBeLargerThanAnyProduct) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "of a GPU";
  constexpr int kNumRows = 1100;  // of 60 tokens: 66,000
  const auto made_for = [](int prefill_chunk) {
    return make_engine(
        kModel, 1,
        {.device = testing::test_device(), .max_batch = kNumRows, .prefill_chunk = prefill_chunk});
  };
  std::vector<Request> requests;
  for (int i = 0; i < kNumRows; ++i) {
    std::vector<int32_t> prompt(60);
    for (int t = 0; t < 60; ++t) prompt[static_cast<size_t>(t)] = (7 * i + 13 * t) % 300;
    requests.push_back(testing::endless_request(std::move(prompt), 2));
  }
  Engine large = made_for(1 << 20), small = made_for(512);
  EXPECT_EQ(large.options().prefill_chunk, 65536);
  const std::vector<Completion> answers = testing::run_all(large, requests);
  EXPECT_EQ(large.stats().prefill_steps, 2);
  const std::vector<Completion> wanted = testing::run_all(small, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    testing::expect_same(answers[i], wanted[i], "request " + std::to_string(i));
  }
}

}  // namespace
}  // namespace heddle
