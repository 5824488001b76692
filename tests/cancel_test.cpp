// A cancelled request ends at once, gives its pages back and leaves the rows that run with it as
// they were.
#include <gtest/gtest.h>

#include "compare.h"
#include "model_fixture.h"
#include "random.h"

namespace heddle {
namespace {

Request chat(const std::string& prompt, const std::string& adapter, int64_t max_tokens) {
  Request request;
  request.messages = {{"user", prompt}};
  request.adapter = adapter;
  request.max_tokens = max_tokens;
  return request;
}

/// A prompt of `num_tokens` tokens.
Request long_prompt(int64_t num_tokens, int64_t max_tokens) {
  Request request;
  request.token_ids.emplace();
  for (int64_t i = 0; i < num_tokens; ++i) {
    request.token_ids->push_back(static_cast<int32_t>(testing::random_int(100, 40000)));
  }
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

/// What one request has become, and how often that was reported.
struct Outcome {
  Completion completion;
  std::string streamed;
  int num_completions = 0;
};

void take(std::vector<Event> events, std::vector<Outcome>& outcomes) {
  for (Event& event : events) {
    Outcome& outcome = outcomes.at(static_cast<size_t>(event.request));
    EXPECT_EQ(outcome.num_completions, 0) << "an event after the last one";
    outcome.streamed += event.text;
    if (!event.completion) continue;
    outcome.completion = std::move(*event.completion);
    ++outcome.num_completions;
  }
}

TEST(Cancel, RowsBesideKeepTheirBitsWhereverTheCancelledOneIs) {
  const std::vector<Request> kept = {chat("Opposites: hot, big, fast", "opposite", 12),
                                     chat("Why is the sky blue?", "", 24)};
  Engine engine = testing::load_engine({.max_batch = 3, .num_threads = 2, .prefill_chunk = 32});
  const std::vector<Completion> alone = testing::run_all(engine, kept);
  // The third row has 200 tokens of prompt in chunks of 32; the fourth waits for a place.
  for (const int cancel_after : {0, 1, 3, 12, 15}) {
    Engine fresh = testing::load_engine({.max_batch = 3, .num_threads = 2, .prefill_chunk = 32});
    std::vector<Outcome> outcomes(4);
    for (const Request& request : kept) (void)fresh.submit(request);
    const RequestId running = fresh.submit(long_prompt(200, 50));
    const RequestId waiting = fresh.submit(long_prompt(20, 50));
    for (int i = 0; i < cancel_after; ++i) take(fresh.step(), outcomes);
    const int64_t num_unfinished = fresh.num_unfinished();
    EXPECT_TRUE(fresh.cancel(waiting));
    EXPECT_TRUE(fresh.cancel(running));
    EXPECT_EQ(fresh.num_unfinished(), num_unfinished) << "its end is not told yet";
    while (fresh.num_unfinished() > 0) take(fresh.step(), outcomes);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(outcomes[i].num_completions, 1) << "row " << i << ", step " << cancel_after;
      EXPECT_EQ(outcomes[i].streamed, outcomes[i].completion.text);
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(outcomes[i].completion.token_ids, alone[i].token_ids);
      EXPECT_TRUE(testing::same_bits<float>(outcomes[i].completion.logprobs, alone[i].logprobs));
    }
    for (size_t i = 2; i < 4; ++i) {
      EXPECT_EQ(outcomes[i].completion.finish_reason, FinishReason::kCancelled);
      EXPECT_LT(outcomes[i].completion.token_ids.size(), 50u);
    }
    if (cancel_after <= 3) {
      EXPECT_EQ(outcomes[3].completion.token_ids.size(), 0u) << "it never ran";
    }
    EXPECT_EQ(outcomes[3].completion.prompt_tokens, 20);
    if (cancel_after == 15) {
      EXPECT_GT(outcomes[2].completion.token_ids.size(), 0u);
    }
  }
}

TEST(Cancel, WhatWasSaidIsTheBeginningOfTheWholeAnswer) {
  Engine engine = testing::load_engine({.max_batch = 1});
  const Request request = chat("Why is the sky blue?", "", 40);
  const Completion whole = testing::run_all(engine, {request}).front();
  const RequestId id = engine.submit(request);
  for (int i = 0; i < 10; ++i) (void)engine.step();
  EXPECT_TRUE(engine.cancel(id));
  const std::vector<Event> events = engine.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, id);
  ASSERT_TRUE(events[0].completion);
  const Completion& cut = *events[0].completion;
  EXPECT_EQ(cut.finish_reason, FinishReason::kCancelled);
  EXPECT_STREQ(name(cut.finish_reason), "cancelled");
  ASSERT_EQ(cut.token_ids.size(), 10u);
  EXPECT_EQ(cut.logprobs.size(), 10u);
  EXPECT_TRUE(std::equal(cut.token_ids.begin(), cut.token_ids.end(), whole.token_ids.begin()));
  EXPECT_EQ(cut.text, whole.text.substr(0, cut.text.size()));
  EXPECT_EQ(engine.num_unfinished(), 0);
  EXPECT_TRUE(engine.step().empty());
}

TEST(Cancel, AllPagesComeBack) {
  // Eight pages: two rows of a full context.
  Engine engine = testing::load_engine(
      {.max_batch = 2, .page_size = 16, .prefill_chunk = 20, .max_context = 64});
  std::vector<Outcome> outcomes(200);
  RequestId next = 0;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 3; ++i) next = engine.submit(long_prompt(40, 24)) + 1;
    for (int i = 0; i < round; ++i) take(engine.step(), outcomes);
    for (RequestId id = next - 3; id < next; ++id) EXPECT_TRUE(engine.cancel(id));
    take(engine.step(), outcomes);
    EXPECT_EQ(engine.num_unfinished(), 0);
  }
  // Both fit at once, and neither runs out of pages: a lost one would make them take turns, or
  // throw.
  const RequestId first = engine.submit(long_prompt(10, 54));
  const RequestId second = engine.submit(long_prompt(10, 54));
  int num_steps = 0;
  for (; engine.num_unfinished() > 0; ++num_steps) {
    take(engine.step(), outcomes);
    ASSERT_LT(num_steps, 60) << "the rows do not run side by side";
  }
  for (const RequestId id : {first, second}) {
    const Completion& completion = outcomes[static_cast<size_t>(id)].completion;
    EXPECT_EQ(completion.finish_reason, FinishReason::kLength);
    EXPECT_EQ(completion.token_ids.size(), 54u);
  }
}

TEST(Cancel, ARequestThatHasEndedIsLeftAlone) {
  Engine engine = testing::load_engine({.max_batch = 1});
  EXPECT_FALSE(engine.cancel(0)) << "never submitted";
  const RequestId done = engine.submit(chat("Opposites: hot", "opposite", 2));
  while (engine.num_unfinished() > 0) (void)engine.step();
  EXPECT_FALSE(engine.cancel(done));
  const RequestId refused = engine.submit(chat("Hi", "nobody", 2));
  EXPECT_FALSE(engine.cancel(refused)) << "it has ended with its error";
  const RequestId cancelled = engine.submit(chat("Hi", "", 2));
  EXPECT_TRUE(engine.cancel(cancelled));
  EXPECT_FALSE(engine.cancel(cancelled));
  const std::vector<Event> events = engine.step();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].completion->finish_reason, FinishReason::kError);
  EXPECT_EQ(events[1].completion->finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(engine.step().empty());
}

}  // namespace
}  // namespace heddle
