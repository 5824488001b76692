#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/engine/engine.h"

#include "compare.h"

namespace heddle::testing {

/// A prompt of these tokens; the end token does not end the answer.
inline Request endless_request(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.token_ids = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

/// The outcome of one request, and how often it was reported.
struct Outcome {
  Completion completion{};
  std::string streamed{};
  int num_completions = 0;
};

/// Adds the news to the outcomes, by the requests' ids from `first` on.
inline void take(std::vector<Event> events, RequestId first, std::vector<Outcome>& outcomes) {
  for (Event& event : events) {
    Outcome& outcome = outcomes.at(static_cast<size_t>(event.request - first));
    EXPECT_EQ(outcome.num_completions, 0) << "an event after the last one";
    outcome.streamed += event.text;
    if (!event.completion) continue;
    outcome.completion = std::move(*event.completion);
    ++outcome.num_completions;
  }
}

/// Nothing is left of all requests: no row, no page, no news.
inline void expect_idle(const Engine& engine) {
  const EngineLoad load = engine.load();
  EXPECT_EQ(load.num_waiting, 0);
  EXPECT_EQ(load.num_running, 0);
  EXPECT_EQ(load.num_ended, 0);
  EXPECT_EQ(load.num_free_pages, load.num_pages);
}

/// More than all requests of a test need, one after the other.
inline constexpr int kTooManySteps = 20000;

/// Runs the requests to their ends; completions in their order.
inline std::vector<Completion> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Outcome> outcomes(requests.size());
  RequestId first = -1;
  for (const Request& request : requests) {
    const RequestId id = engine.submit(request);
    if (first < 0) first = id;
  }
  int num_steps = 0;
  while (engine.num_unfinished() > 0 && ++num_steps < kTooManySteps) {
    take(engine.step(), first, outcomes);
  }
  std::vector<Completion> completions;
  for (Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.num_completions, 1);
    EXPECT_EQ(outcome.streamed, outcome.completion.text);
    EXPECT_EQ(outcome.completion.logprobs.size(), outcome.completion.token_ids.size());
    completions.push_back(std::move(outcome.completion));
  }
  expect_idle(engine);
  return completions;
}

/// Their answers, none of which has an error.
inline std::vector<Completion> run_whole(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Completion> answers = run_all(engine, requests);
  for (const Completion& answer : answers) EXPECT_EQ(answer.error, "");
  return answers;
}

/// The same answer, bit for bit.
inline void expect_same(const Completion& got, const Completion& want, const std::string& what) {
  EXPECT_EQ(got.token_ids, want.token_ids) << what;
  EXPECT_TRUE(same_bits<float>(got.logprobs, want.logprobs)) << what;
  EXPECT_EQ(got.text, want.text) << what;
  EXPECT_EQ(got.finish_reason, want.finish_reason) << what;
  EXPECT_EQ(got.error, want.error) << what;
  EXPECT_EQ(got.error_code, want.error_code) << what;
}

}  // namespace heddle::testing
