// One prompt through several adapters: what their rows share, and that their bits do not show it.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;

class SubmitEach : public ::testing::Test {
 protected:
  static constexpr int kPageSize = 3;

  Engine engine_with(EngineOptions options) {
    options.page_size = kPageSize;
    options.prefill_chunk = 4;
    Engine made = model.engine(options);
    (void)made.add_adapter("a", a.folder.path().string());
    (void)made.add_adapter("called", called.folder.path().string());
    return made;
  }

  /// 20 tokens, the invocation at 13.
  static Request request(int64_t max_tokens) {
    Request row = testing::endless_request(testing::random_tokens(20), max_tokens);
    for (int32_t& token : *row.token_ids) token = std::max(token, 9);
    (*row.token_ids)[13] = 7;
    (*row.token_ids)[14] = 8;
    return row;
  }

  /// Runs all rows to their ends; completions in the order of the ids.
  static std::vector<testing::Outcome> finish(Engine& engine, const std::vector<RequestId>& ids) {
    std::vector<testing::Outcome> outcomes(ids.size());
    for (int i = 0; engine.num_unfinished() > 0 && i < testing::kTooManySteps; ++i) {
      testing::take(engine.step(), ids.front(), outcomes);
    }
    testing::expect_idle(engine);
    return outcomes;
  }

  /// Tokens of prompts that some rows computed, where whole pages alone are shared. Rows that start
  /// when another has ended also have a part of its last page.
  static void expect_computed(const Engine& engine, int64_t want, size_t num_rows,
                              const std::string& what) {
    EXPECT_LE(engine.stats().prefill_tokens, want) << what;
    EXPECT_GE(engine.stats().prefill_tokens,
              want - (kPageSize - 1) * static_cast<int64_t>(num_rows))
        << what;
  }

  void expect_alone(const std::vector<testing::Outcome>& outcomes, const Request& row,
                    const std::string& what) {
    Engine fresh = engine_with({.max_batch = 1});
    for (size_t i = 0; i < each.size(); ++i) {
      Request own = row;
      own.adapters = each[i].adapters;
      testing::expect_same(outcomes[i].completion, testing::run_all(fresh, {own})[0],
                           what + ", entry " + std::to_string(i));
    }
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  testing::TinyAdapter a{base, 3, {llama::kQ, llama::kV, llama::kDown}};
  testing::TinyAdapter called{
      base, 2, {llama::kK, llama::kV}, DType::kFloat32, R"(, "alora_invocation_tokens": [7, 8])"};
  testing::TinyModel model{base};
  const std::vector<RequestVariant> each = {{{}},           {{{"called"}}}, {{{"a"}}},
                                            {{{"called"}}}, {{{"a"}}},      {{{"called", 0.5f}}}};
  // Whole pages of 3 tokens are shared: 12 before the invocation, 18 of the same adapter.
  const int64_t num_computed = 20 + 8 + 20 + 2 + 2 + 8;
};

TEST_F(SubmitEach, RowsShareWhatTheirAdaptersLeaveAsItIs) {
  for (const int max_batch : {1, 2, 8}) {
    for (const int64_t max_tokens : {1, 7}) {
      Engine engine = engine_with({.max_batch = max_batch});
      const Request row = request(max_tokens);
      const auto outcomes = finish(engine, engine.submit_each(row, each));
      expect_computed(engine, num_computed, each.size(), std::to_string(max_batch) + " at once");
      expect_alone(outcomes, row, std::to_string(max_batch) + " at once");
    }
  }
}

/// Whoever comes first computes what the others take over, and that is what their own adapters
/// leave as it is: the base model after an adapter computes all of it.
TEST_F(SubmitEach, TheirOrderChangesNoRow) {
  struct Order {
    std::vector<size_t> entries;  // of `each`
    int64_t num_computed;
  };
  const Order orders[] = {{{2, 0}, 40},        // a, base
                          {{2, 0, 4, 0}, 44},  // a, base, a, base
                          {{1, 2, 0, 5}, 56},  // called, a, base, called at another scale
                          {{5, 1, 0}, 36},     // twelve of called's tokens are the base's
                          {{4, 3, 2, 1, 0}, 52}};
  const Request row = request(7);
  Engine fresh = engine_with({.max_batch = 1});
  for (const auto& [entries, num_computed] : orders) {
    for (const int max_batch : {1, 8}) {
      std::vector<RequestVariant> variants;
      std::string order;
      for (const size_t entry : entries) {
        variants.push_back(each[entry]);
        order += std::to_string(entry) + " ";
      }
      Engine engine = engine_with({.max_batch = max_batch});
      const auto outcomes = finish(engine, engine.submit_each(row, variants));
      expect_computed(engine, num_computed, entries.size(), order + std::to_string(max_batch));
      for (size_t i = 0; i < entries.size(); ++i) {
        Request own = row;
        own.adapters = variants[i].adapters;
        testing::expect_same(outcomes[i].completion, testing::run_all(fresh, {own})[0],
                             order + ": " + std::to_string(i));
      }
    }
  }
}

/// The pages of a row that has ended are evicted where no request could go on otherwise.
TEST_F(SubmitEach, SharingNeedsNoMoreMemoryThanOneRow) {
  Engine probe = engine_with({.max_batch = 1});
  const int64_t page_bytes = probe.options().kv_memory / probe.load().num_pages;
  Engine engine = engine_with({.max_batch = 4, .kv_memory = 9 * page_bytes});
  const Request row = request(7);  // 26 tokens in the cache, 9 pages
  expect_alone(finish(engine, engine.submit_each(row, each)), row, "9 pages");
}

TEST_F(SubmitEach, ARowOutlivesTheOneThatItSharesWith) {
  for (const int num_steps : {0, 2, 8}) {
    Engine engine = engine_with({.max_batch = 8});
    const Request row = request(7);
    const std::vector<RequestId> ids = engine.submit_each(row, each);
    std::vector<testing::Outcome> outcomes(ids.size());
    for (int i = 0; i < num_steps; ++i) testing::take(engine.step(), ids[0], outcomes);
    EXPECT_TRUE(engine.cancel(ids[0]));
    EXPECT_TRUE(engine.cancel(ids[3]));
    while (engine.num_unfinished() > 0) testing::take(engine.step(), ids[0], outcomes);
    testing::expect_idle(engine);
    for (const size_t i : {0, 3}) {
      EXPECT_EQ(outcomes[i].completion.finish_reason, FinishReason::kCancelled);
    }
    Engine fresh = engine_with({.max_batch = 1});
    for (const size_t i : {1, 2, 4, 5}) {
      Request own = row;
      own.adapters = each[i].adapters;
      testing::expect_same(outcomes[i].completion, testing::run_all(fresh, {own})[0],
                           "cancelled after " + std::to_string(num_steps));
    }
  }
}

/// A row computes all tokens whose log-probabilities it reports.
TEST_F(SubmitEach, RowsThatScoreTheirPromptShareNothing) {
  Engine engine = engine_with({.max_batch = 8});
  Request row = request(2);
  row.prompt_logprobs = true;
  const auto outcomes = finish(engine, engine.submit_each(row, each));
  EXPECT_EQ(engine.stats().prefill_tokens, 20 * std::ssize(each));
  expect_alone(outcomes, row, "scored");
  Engine fresh = engine_with({.max_batch = 1});
  for (size_t i = 0; i < each.size(); ++i) {
    row.adapters = each[i].adapters;
    const Completion alone = testing::run_all(fresh, {row}).front();
    const std::span<const float> got = outcomes[i].completion.prompt_logprobs;
    ASSERT_EQ(got.size(), 20u);
    EXPECT_TRUE(
        testing::same_bits<float>(got.subspan(1), std::span(alone.prompt_logprobs).subspan(1)));
  }
}

/// Answers to one prompt: sample i is what the request is alone with its seed + i.
TEST_F(SubmitEach, SamplesShareThePromptAndDrawWithSeedsOfTheirOwn) {
  for (const char* adapter : {"", "a", "called"}) {
    Engine engine = engine_with({.max_batch = 3, .admit = "longest"});
    Request row = request(7);
    row.adapter = adapter;
    const uint64_t seed = std::numeric_limits<int64_t>::max() - 1;
    row.sampling = {.temperature = 1.5f, .seed = static_cast<int64_t>(seed)};
    const std::vector<RequestId> ids = engine.submit_each(row, sample_variants(5));
    std::vector<testing::Outcome> outcomes(ids.size());
    int64_t num_pages = 0;  // of three rows that decode
    while (engine.num_unfinished() > 0) {
      testing::take(engine.step(), ids.front(), outcomes);
      const EngineLoad load = engine.load();
      if (load.num_running == 3) num_pages = load.num_pages - load.num_free_pages;
    }
    testing::expect_idle(engine);
    expect_computed(engine, 20 + 4 * 2, 4, "18 of 20 tokens are in whole pages");
    // 6 pages that all have, 3 of each row that runs; on the CPU fewer where two draw the same.
    EXPECT_LE(num_pages, 6 + 3 * 3);
    EXPECT_GT(num_pages, 6);
    Engine fresh = engine_with({.max_batch = 1});
    for (size_t i = 0; i < 5; ++i) {
      row.sampling.seed = static_cast<int64_t>(seed + i);
      testing::expect_same(outcomes[i].completion, testing::run_all(fresh, {row})[0],
                           "sample " + std::to_string(i));
    }
    EXPECT_NE(outcomes[0].completion.token_ids, outcomes[3].completion.token_ids);
  }
}

TEST_F(SubmitEach, OneThatCannotRunIsRefusedAlone) {
  Engine engine = engine_with({.max_batch = 8});
  const std::vector<RequestVariant> lists = {{{{"nobody"}}}, {}, {{{"a"}, {"called"}}}};
  const auto outcomes = finish(engine, engine.submit_each(request(2), lists));
  EXPECT_EQ(outcomes[0].completion.error, "unknown adapter \"nobody\"");
  EXPECT_EQ(outcomes[1].completion.error, "");
  EXPECT_EQ(
      outcomes[2].completion.error,
      "adapters[1] is \"called\", which has alora_invocation_tokens: it must be the only adapter");
  EXPECT_TRUE(engine.submit_each(request(2), {}).empty());
  Request named = request(2);
  named.adapter = "a";
  const std::vector<RequestVariant> both = {{}, {{{"called"}}}};
  const auto of_both = finish(engine, engine.submit_each(named, both));
  EXPECT_EQ(of_both[0].completion.error, "");
  EXPECT_EQ(
      of_both[1].completion.error,
      "a request that is run for several adapters also has adapter or adapters; leave them out");
  testing::expect_invalid({"n is 0, expected 1 to 128"}, [] { (void)sample_variants(0); });
  testing::expect_invalid({"n is 129, expected 1 to 128"}, [] { (void)sample_variants(129); });
}

}  // namespace
}  // namespace heddle
