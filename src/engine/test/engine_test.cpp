// Rows in an engine: what is refused, who waits for whom, and that none of it changes a bit.
#include "heddle/engine/engine.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "engine/test/engine_cases.h"
#include "engine/test/model_files.h"
#include "engine/test/test_device.h"
#include "expect_error.h"

namespace heddle {
namespace {

using testing::endless_request;

constexpr int64_t kContext = testing::kTinyContext;

/// Bytes of a page of 4 tokens: 2 layers, keys and values, 2 heads of 4 elements, in f32 or, on a
/// GPU, bf16.
const int64_t kPageBytes = 2 * 2 * 2 * 4 * 4 * (testing::is_on_cpu() ? 4 : 2);

/// Options for a tiny model with pages of 4 tokens.
EngineOptions options_for(const std::string& path, int max_batch, int64_t num_pages) {
  return {.model_path = path,
          .device = testing::test_device(),
          .max_batch = max_batch,
          .num_threads = 1,
          .page_size = 4,
          .kv_memory = num_pages * kPageBytes};
}

std::vector<int32_t> random_prompt(int64_t length) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.push_back(
        static_cast<int32_t>(testing::random_int(0, testing::RandomModel::kVocabSize - 1)));
  }
  return prompt;
}

/// Requests of prompts and answers of up to 30 tokens each.
std::vector<Request> random_requests(int count) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(
        endless_request(random_prompt(testing::random_int(1, 30)), testing::random_int(1, 30)));
    requests.back().sampling = {.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = i};
  }
  return requests;
}

TEST(Engine, RefusesAValueOutOfItsRangeAndNothingElse) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Case {
    std::function<void(Request&)> change;
    std::vector<const char*> says;
    RequestError code = RequestError::kInvalidArgument;
  };
  std::vector<Case> cases;
  for (const float wrong : {-1.0f, -1e-30f, kNan, kInf, -kInf}) {
    cases.push_back({[=](Request& r) { r.sampling.temperature = wrong; },
                     {"temperature is ", "expected a finite number of at least 0"}});
  }
  for (const float wrong : {0.0f, -0.5f, 1.0001f, kNan, kInf, -kInf}) {
    cases.push_back({[=](Request& r) { r.sampling.top_p = wrong; },
                     {"top_p is ", "expected above 0 and up to 1"}});
  }
  for (const float wrong : {-0.1f, 1.5f, kNan, kInf, -kInf}) {
    cases.push_back(
        {[=](Request& r) { r.sampling.min_p = wrong; }, {"min_p is ", "expected 0 to 1"}});
  }
  for (const int32_t wrong : {-1, std::numeric_limits<int32_t>::min()}) {
    cases.push_back(
        {[=](Request& r) { r.sampling.top_k = wrong; }, {"top_k is -", "expected at least 0"}});
  }
  for (const int64_t wrong : {int64_t{-1}, int64_t{-5}, std::numeric_limits<int64_t>::min()}) {
    cases.push_back(
        {[=](Request& r) { r.max_tokens = wrong; }, {"max_tokens is ", "expected at least 0"}});
  }
  cases.push_back({[](Request& r) { r.stop = {"a", ""}; }, {"stop[1] is empty"}});
  cases.push_back({[](Request& r) { r.stop = {"\xC3"}; }, {"stop[0] is not UTF-8"}});
  cases.push_back({[](Request& r) { r.adapter = "nobody"; },
                   {"unknown adapter \"nobody\""},
                   RequestError::kUnknownAdapter});
  cases.push_back({[](Request& r) { r.token_ids = {1, 26}; }, {"token id 26", "has 26"}});
  cases.push_back({[](Request& r) { r.token_ids = {-1}; }, {"token id -1"}});
  cases.push_back({[](Request& r) { r.token_ids.emplace(); }, {"the prompt has no tokens"}});
  cases.push_back({[](Request& r) { r.token_ids->resize(64); }, {"the prompt has 64", "holds 64"}});
  cases.push_back({[](Request& r) { r.text = "a"; }, {"a request has 2 of messages, text and"}});
  cases.push_back({[](Request& r) {
                     r.token_ids.reset();
                     r.messages = {{"user", "a"}};
                   },
                   {"no chat template"}});

  const testing::RandomModel model;
  Engine engine(options_for(model.path(), 4, 64));
  std::vector<Request> good = random_requests(3);
  const std::vector<Completion> alone = testing::run_all(engine, good);
  std::vector<Request> mixed = good;
  for (const Case& wrong : cases) {
    mixed.push_back(endless_request({3, 4}, 4));
    wrong.change(mixed.back());
    const std::string said = testing::message_of([&] { engine.check(mixed.back()); });
    for (const char* part : wrong.says) EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  const std::vector<Completion> together = testing::run_all(engine, mixed);
  for (size_t i = 0; i < alone.size(); ++i) testing::expect_same(together[i], alone[i], "good row");
  for (size_t i = 0; i < cases.size(); ++i) {
    const Completion& refused = together[good.size() + i];
    EXPECT_EQ(refused.finish_reason, FinishReason::kError) << cases[i].says[0];
    EXPECT_EQ(refused.error, testing::message_of([&] { engine.check(mixed[good.size() + i]); }));
    EXPECT_EQ(refused.error_code, cases[i].code) << cases[i].says[0];
    EXPECT_TRUE(refused.token_ids.empty());
  }
}

TEST(Engine, TakesTheEndsOfEveryRange) {
  const testing::RandomModel model;
  Engine engine(options_for(model.path(), 4, 64));
  Request request = endless_request({1, 2, 3}, std::numeric_limits<int64_t>::max());
  request.sampling = {.temperature = std::numeric_limits<float>::max(),
                      .top_k = std::numeric_limits<int32_t>::max(),
                      .top_p = std::numeric_limits<float>::denorm_min(),
                      .min_p = 1.0f,
                      .seed = std::numeric_limits<int64_t>::min()};
  Request cold = endless_request({1, 2, 3}, 20), greedy = cold;
  cold.sampling.temperature = std::numeric_limits<float>::denorm_min();
  const std::vector<Completion> answers = testing::run_all(engine, {request, cold, greedy});
  EXPECT_EQ(answers[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(answers[0].token_ids.size(), static_cast<size_t>(kContext - 3));
  testing::expect_same(answers[1], answers[2], "the coldest draw is the most likely token");
  for (const float penalty : {-2.0f, 2.0f}) {
    greedy.sampling.presence_penalty = greedy.sampling.frequency_penalty = penalty;
    greedy.logit_bias = {{25, 50 * penalty}};
    greedy.min_tokens = greedy.max_tokens;
    greedy.top_logprobs = 26;
    EXPECT_EQ(testing::message_of([&] { engine.check(greedy); }), "no error") << penalty;
  }
}

TEST(EngineOptions, AStepTakesInMoreOfPromptsOnAGpu) {
  const testing::RandomModel model;
  const Engine engine(options_for(model.path(), 2, 8));
  EXPECT_EQ(engine.options().prefill_chunk, testing::is_on_cpu() ? 512 : 2048);
}

TEST(EngineOptions, AreRefusedOutOfTheirRange) {
  const testing::RandomModel model;
  const EngineOptions good = options_for(model.path(), 2, 8);
  constexpr int kMin = std::numeric_limits<int>::min(), kMax = std::numeric_limits<int>::max();
  const auto refused = [&](auto EngineOptions::*field, auto value, const char* name) {
    EngineOptions options = good;
    options.*field = value;
    const std::string given = std::string(name) + " is " + std::to_string(value) + ", expected ";
    testing::expect_invalid({given.c_str()}, [&] { const Engine engine(options); });
  };
  for (const int wrong : {0, -1, kMin, kMax, 65537}) {
    refused(&EngineOptions::max_batch, wrong, "max_batch");
    refused(&EngineOptions::page_size, wrong, "page_size");
  }
  for (const int wrong : {-1, kMin, kMax, 2048}) {
    refused(&EngineOptions::num_threads, wrong, "num_threads");
  }
  for (const int wrong : {-1, kMin}) {
    refused(&EngineOptions::prefill_chunk, wrong, "prefill_chunk");
  }
  for (const int64_t wrong : {int64_t{-1}, kContext + 1, std::numeric_limits<int64_t>::max()}) {
    refused(&EngineOptions::max_context, wrong, "max_context");
  }
  refused(&EngineOptions::kv_memory, int64_t{-1}, "kv_memory");
  EngineOptions options = good;
  options.kv_memory = kPageBytes - 1;
  const std::string given = "kv_memory is " + std::to_string(kPageBytes - 1) + " bytes";
  const std::string least = std::to_string(kPageBytes);
  testing::expect_invalid({given.c_str(), "page of 4 tokens", least.c_str()},
                          [&] { const Engine engine(options); });
}

TEST(EngineOptions, AdmitIsOneOfTwoWords) {
  const testing::RandomModel model;
  EngineOptions options = options_for(model.path(), 2, 8);
  EXPECT_EQ(Engine(options).options().admit, "now");
  options.admit = "longest";
  EXPECT_EQ(Engine(options).options().admit, "longest");
  options.admit = "Now";
  testing::expect_invalid({"admit is 'Now', expected now or longest"},
                          [&] { const Engine engine(options); });
}

TEST(EngineOptions, OfAnySizeWithinTheirRangeGiveTheSameAnswers) {
  const testing::RandomModel model;
  const std::vector<Request> requests = random_requests(6);
  Engine usual(options_for(model.path(), 4, 64));
  const std::vector<Completion> wanted = testing::run_all(usual, requests);
  const auto expect_wanted = [&](const EngineOptions& options, const std::string& what) {
    Engine engine(options);
    const std::vector<Completion> got = testing::run_all(engine, requests);
    for (size_t i = 0; i < got.size(); ++i) testing::expect_same(got[i], wanted[i], what);
  };
  EngineOptions options = options_for(model.path(), 4, 64);
  options.prefill_chunk = std::numeric_limits<int>::max();
  expect_wanted(options, "the largest chunk");
  options.prefill_chunk = 1;
  expect_wanted(options, "the smallest chunk");
  options = options_for(model.path(), 65536, 64);
  expect_wanted(options, "the largest batch");
  options.prefill_chunk = std::numeric_limits<int>::max();
  expect_wanted(options, "the largest batch and chunk");
  options = options_for(model.path(), 4, 64);
  options.kv_memory = std::numeric_limits<int64_t>::max();
  expect_wanted(options, "the largest cache");
  options.page_size = 65536;
  expect_wanted(options, "the largest page");
}

TEST(KvMemory, IsABudgetWithinWhichRowsWaitForOneAnother) {
  const testing::RandomModel model;
  const std::vector<Request> requests = random_requests(30);
  Engine roomy(options_for(model.path(), 30, 1000));
  const std::vector<Completion> wanted = testing::run_all(roomy, requests);
  Engine tight(options_for(model.path(), 30, 15));  // the longest row alone
  EXPECT_EQ(tight.options().kv_memory, 15 * kPageBytes);
  EXPECT_EQ(tight.load().num_pages, 15);
  std::vector<testing::Outcome> outcomes(requests.size());
  for (const Request& request : requests) (void)tight.submit(request);
  bool any_waited = false;
  for (int num_steps = 0; tight.num_unfinished() > 0; ++num_steps) {
    ASSERT_LT(num_steps, 30 * 30) << "somebody starves";
    testing::take(tight.step(), 0, outcomes);
    const EngineLoad load = tight.load();
    any_waited |= load.num_waiting > 0 && load.num_running > 0;
    EXPECT_GE(load.num_free_pages, 0);
  }
  EXPECT_TRUE(any_waited);
  testing::expect_idle(tight);
  for (size_t i = 0; i < wanted.size(); ++i) {
    testing::expect_same(outcomes[i].completion, wanted[i], "row " + std::to_string(i));
  }
}

TEST(KvMemory, ARowThatNeverFitsIsRefusedAndToldWhy) {
  const testing::RandomModel model;
  Engine engine(options_for(model.path(), 2, 5));
  // 5 pages of 4 hold 20 tokens; the last token of an answer is not stored.
  const std::vector<Completion> answers = testing::run_all(
      engine, {endless_request(random_prompt(10), 11), endless_request(random_prompt(10), 12)});
  EXPECT_EQ(answers[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(answers[0].token_ids.size(), 11u);
  EXPECT_EQ(answers[1].finish_reason, FinishReason::kError);
  EXPECT_EQ(answers[1].error,
            "prompt and answer may take 22 tokens, which need 6 pages of the KV cache (" +
                std::to_string(6 * kPageBytes) +
                " bytes), but it has 5 (kv_memory: " + std::to_string(5 * kPageBytes) + " bytes)");
}

TEST(KvMemory, IsNoMoreThanTheBatchCanUse) {
  const testing::RandomModel model;
  EngineOptions options = options_for(model.path(), 3, 1000);
  EXPECT_EQ(Engine(options).load().num_pages, 3 * kContext / 4);
  options.kv_memory = 0;  // half of what is available, which is more
  const Engine engine(options);
  EXPECT_EQ(engine.load().num_pages, 3 * kContext / 4);
  EXPECT_EQ(engine.options().kv_memory, 3 * kContext / 4 * kPageBytes);
}

TEST(Engine, AnAnswerMayUseTheContextToItsLastToken) {
  const testing::RandomModel model;
  Engine engine(options_for(model.path(), 1, 1000));
  for (const int64_t prompt : {int64_t{1}, int64_t{40}, kContext - 1}) {
    const Completion answer =
        testing::run_all(engine, {endless_request(random_prompt(prompt), 1000)}).front();
    EXPECT_EQ(std::ssize(answer.token_ids), kContext - prompt);
    EXPECT_EQ(answer.prompt_tokens, prompt);
    EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  }
}

TEST(Engine, ARowThatIsCancelledGivesItsPagesBackAndDisturbsNobody) {
  const testing::RandomModel model;
  const std::vector<Request> requests = {endless_request(random_prompt(9), 20),
                                         endless_request(random_prompt(30), 20),
                                         endless_request(random_prompt(3), 20)};
  EngineOptions options = options_for(model.path(), 2, 1000);
  options.admit = "longest";
  Engine engine(options);
  const std::vector<Completion> wanted = testing::run_all(engine, requests);
  for (int after = 0; after < 18; ++after) {
    engine.reset_prefix_cache();
    std::vector<testing::Outcome> outcomes(3);
    const RequestId first = engine.submit(requests[0]);
    for (size_t i = 1; i < 3; ++i) (void)engine.submit(requests[i]);
    for (int i = 0; i < after; ++i) testing::take(engine.step(), first, outcomes);
    const int64_t free_before = engine.load().num_free_pages;
    EXPECT_TRUE(engine.cancel(first + 1));
    EXPECT_FALSE(engine.cancel(first + 1));
    EXPECT_EQ(engine.load().num_free_pages, free_before + (after > 0 ? 13 : 0));
    EXPECT_EQ(engine.load().num_ended, 1);
    while (engine.num_unfinished() > 0) testing::take(engine.step(), first, outcomes);
    testing::expect_idle(engine);
    testing::expect_same(outcomes[0].completion, wanted[0], "before it");
    testing::expect_same(outcomes[2].completion, wanted[2], "after it");
    const Completion& cut = outcomes[1].completion;
    EXPECT_EQ(cut.finish_reason, FinishReason::kCancelled);
    ASSERT_EQ(std::ssize(cut.token_ids), after) << "a token a step";
    EXPECT_TRUE(
        std::equal(cut.token_ids.begin(), cut.token_ids.end(), wanted[1].token_ids.begin()));
    EXPECT_EQ(cut.logprobs.size(), cut.token_ids.size());
    EXPECT_EQ(cut.text, wanted[1].text.substr(0, cut.text.size()));
    EXPECT_EQ(outcomes[1].streamed, cut.text);
  }
}

TEST(Engine, EachRowHasItsOwnAdapter) {
  testing::RandomModel model;
  Engine engine(options_for(model.path(), 4, 1000));
  (void)engine.add_adapter("first", model.adapter_folder("first", 3));
  (void)engine.add_adapter("second", model.adapter_folder("second", 5));
  std::vector<Request> requests(3, endless_request({1, 2, 3}, 12));
  requests[1].adapter = "first";
  requests[2].adapter = "second";
  std::vector<Completion> alone;
  std::vector<std::vector<float>> logits;
  for (const Request& request : requests) {
    alone.push_back(testing::run_all(engine, {request}).front());
    logits.push_back(engine.prompt_logits(request));
  }
  EXPECT_NE(logits[0], logits[1]);
  EXPECT_NE(logits[0], logits[2]);
  EXPECT_NE(logits[1], logits[2]);
  const std::vector<Completion> together = testing::run_all(engine, requests);
  for (size_t i = 0; i < 3; ++i) testing::expect_same(together[i], alone[i], requests[i].adapter);
}

TEST(Engine, ShowsWhatItsRowsDo) {
  testing::RandomModel model;
  EngineOptions options = options_for(model.path(), 2, 1000);
  options.prefill_chunk = 4;
  Engine engine(options);
  (void)engine.add_adapter("first", model.adapter_folder("first", 3));
  (void)engine.add_adapter("second", model.adapter_folder("second", 5));
  std::vector<Request> requests(3, endless_request(random_prompt(11), 6));
  requests[1].adapter = "first";
  requests[2].adapters = {{"first", 0.5f}, {"second", 1.0f}};
  for (const Request& request : requests) (void)engine.submit(request);
  ASSERT_EQ(engine.row_progress(10).size(), 3u);
  EXPECT_EQ(engine.row_progress(1).size(), 1u);
  const char* const adapters[] = {"", "first", "first+second"};
  std::vector<std::vector<RowPhase>> phases(3);
  std::vector<int64_t> most_answer(3);
  while (engine.num_unfinished() > 0) {
    for (const RowProgress& row : engine.row_progress(10)) {
      const auto i = static_cast<size_t>(row.id);
      EXPECT_EQ(row.adapter, adapters[i]);
      EXPECT_EQ(row.prompt_tokens, 11);
      EXPECT_LE(row.cached_tokens, row.computed_tokens);
      EXPECT_EQ(row.computed_tokens == 11, row.phase == RowPhase::kDecode);
      EXPECT_FALSE(row.is_parked || row.is_paused);
      if (phases[i].empty() || phases[i].back() != row.phase) phases[i].push_back(row.phase);
      most_answer[i] = std::max(most_answer[i], row.answer_tokens);
    }
    (void)engine.step();
  }
  EXPECT_TRUE(engine.row_progress(10).empty());
  const std::vector<RowPhase> in_order = {RowPhase::kWaiting, RowPhase::kPrefill,
                                          RowPhase::kDecode};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(phases[i], in_order) << i;
    EXPECT_GE(most_answer[i], 4) << i;
  }
}

TEST(Engine, PromptLogitsAreThoseOfTheWholePrompt) {
  const testing::RandomModel model;
  EngineOptions options = options_for(model.path(), 2, 1000);
  const Request request = endless_request(random_prompt(20), 1);
  Engine whole(options);
  options.prefill_chunk = 3;
  Engine chunked(options);
  const std::vector<float> logits = whole.prompt_logits(request);
  EXPECT_TRUE(testing::same_bits<float>(chunked.prompt_logits(request), logits));
  testing::expect_idle(chunked);
  const int32_t likeliest = testing::run_all(whole, {request}).front().token_ids[0];
  EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), likeliest);
}

}  // namespace
}  // namespace heddle
