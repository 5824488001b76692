// A row's tokens and the bits of its log-probabilities do not depend on what runs concurrently, nor
// on how it is run.
#include <gtest/gtest.h>

#include "compare.h"
#include "model_fixture.h"
#include "random.h"

namespace heddle {
namespace {

/// Rows of all adapters and the base model, greedy and sampled, short and long.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  const std::vector<std::string> prompts = {"Cron expression: every weekday at 9:30",
                                            "Write as an ISO date: March 3rd, 2021",
                                            "Opposites: hot, big, fast",
                                            "Extract as JSON: Maria Lopez, 34, lives in Porto.",
                                            "Sentiment: I loved the film. Five stars from me.",
                                            "Shell command: find .log files in /tmp",
                                            "Slug: The Quick Brown River!",
                                            "SQL: the average price of cars per brand",
                                            "Why is the sky blue? Answer in one sentence."};
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request;
    request.messages = {{"user", prompts[i]}};
    if (i < testing::kAdapters.size()) request.adapter = testing::kAdapters[i];
    request.max_tokens = 12 + static_cast<int64_t>(i);
    requests.push_back(request);
    request.sampling = {
        .temperature = 0.9f, .top_k = 50, .top_p = 0.95f, .seed = testing::random_int(0, 1 << 30)};
    requests.push_back(request);
  }
  Request longer;  // several pages and several chunks
  longer.text = std::string();
  for (int i = 0; i < 60; ++i) *longer.text += "The loom has " + std::to_string(i) + " threads. ";
  longer.max_tokens = 8;
  requests.push_back(longer);
  return requests;
}

void expect_same(const std::vector<Completion>& got, const std::vector<Completion>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token_ids, want[i].token_ids) << what << ", row " << i;
    EXPECT_TRUE(testing::same_bits<float>(got[i].logprobs, want[i].logprobs))
        << what << ", row " << i;
  }
}

TEST(BatchIndependence, ARowAloneIsTheRowInAnyBatch) {
  const std::vector<Request> requests = mixed_requests();
  std::vector<Completion> alone;
  {
    Engine engine = testing::load_engine({.max_batch = 1, .num_threads = 2});
    for (const Request& request : requests) {
      alone.push_back(testing::run_all(engine, {request}).front());
      ASSERT_FALSE(alone.back().token_ids.empty());
      EXPECT_EQ(alone.back().logprobs.size(), alone.back().token_ids.size());
    }
  }
  struct Way {
    int num_threads, page_size, prefill_chunk, max_batch;
  };
  for (const Way& way :
       {Way{2, 16, 512, 32}, Way{2, 1, 7, 8}, Way{2, 64, 512, 8}, Way{1, 16, 7, 5}}) {
    Engine engine = testing::load_engine({.max_batch = way.max_batch,
                                          .num_threads = way.num_threads,
                                          .page_size = way.page_size,
                                          .prefill_chunk = way.prefill_chunk});
    expect_same(testing::run_all(engine, requests), alone,
                "threads " + std::to_string(way.num_threads) + ", page size " +
                    std::to_string(way.page_size) + ", chunk " + std::to_string(way.prefill_chunk));
  }
}

}  // namespace
}  // namespace heddle
