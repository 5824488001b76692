// Requests that take keys and values from the prefix cache have the bits of those that compute all
// of their own: whatever is found, evicted, parked or computed at the same time.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;

class EnginePrefixes : public ::testing::Test {
 protected:
  Engine engine_with(EngineOptions options) {
    if (options.page_size == 16) options.page_size = 4;
    options.kv_type = kv_type;
    Engine made = model.engine(options);
    (void)made.add_adapter("a", a.folder.path().string());
    (void)made.add_adapter("b", b.folder.path().string());
    (void)made.add_adapter("called", called.folder.path().string());
    return made;
  }
  Engine cold_engine() {
    return engine_with({.max_batch = 1, .prefix_cache = false, .admit = "longest"});
  }
  /// What the request has alone, where nothing is shared.
  Completion alone(const Request& request) {
    Completion answer = testing::run_all(cold, {request}).front();
    EXPECT_EQ(answer.cached_tokens, 0);
    return answer;
  }
  /// Runs one request; returns how many tokens of its prompt were computed.
  int64_t run(Engine& engine, const Request& request) {
    const int64_t before = engine.stats().prefill_tokens;
    const Completion answer = testing::run_all(engine, {request}).front();
    testing::expect_same(answer, alone(request), "with the cache");
    const int64_t num_computed = engine.stats().prefill_tokens - before;
    EXPECT_EQ(answer.cached_tokens, answer.prompt_tokens - num_computed);
    return num_computed;
  }
  static Request request_of(std::vector<int32_t> tokens, const std::string& adapter = "",
                            int64_t max_tokens = 3) {
    Request request = testing::endless_request(std::move(tokens), max_tokens);
    request.adapter = adapter;
    return request;
  }
  /// Without the tokens that invoke.
  static std::vector<int32_t> tokens(int64_t count) {
    std::vector<int32_t> ids = testing::random_tokens(count);
    for (int32_t& id : ids) id = std::max(id, 9);
    return ids;
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  testing::TinyAdapter a{base, 3, {llama::kQ, llama::kV, llama::kDown}};
  testing::TinyAdapter b{base, 2, {llama::kK, llama::kO}};
  testing::TinyAdapter called{
      base, 2, {llama::kK, llama::kV}, DType::kFloat32, R"(, "alora_invocation_tokens": [7, 8])"};
  testing::TinyModel model{base};
  const std::string kv_type = testing::any_kv_type();
  Engine cold = cold_engine();
};

TEST_F(EnginePrefixes, ALaterRequestComputesWhatIsNew) {
  Engine engine = engine_with({});
  std::vector<int32_t> prompt = tokens(21);
  EXPECT_EQ(run(engine, request_of(prompt)), 21);
  EXPECT_EQ(run(engine, request_of(prompt)), 1) << "the last token, in a page of its own";
  prompt.resize(20);
  EXPECT_EQ(run(engine, request_of(prompt)), 1) << "the last of its pages";
  prompt[13] = prompt[13] == 9 ? 10 : 9;
  EXPECT_EQ(run(engine, request_of(prompt)), 7);
  EXPECT_EQ(engine.load().num_free_pages, engine.load().num_pages);
  // Pages that end within: that of the first prompt; where drawn tokens are kept, of the third.
  EXPECT_EQ(engine.load().num_cached_pages, 5 + 2 + (testing::is_on_cpu() ? 2 : 1));
  engine.reset_prefix_cache();
  EXPECT_EQ(engine.load().num_cached_pages, 0);
  EXPECT_EQ(run(engine, request_of(prompt)), 20);
}

/// On a GPU what was drawn is computed once more as a prompt.
TEST_F(EnginePrefixes, ATurnOfAConversationComputesItsNewTokens) {
  Engine engine = engine_with({});
  std::vector<int32_t> conversation;
  int64_t num_found = 0;  // of the turn before
  for (int turn = 0; turn < 6; ++turn) {
    const std::vector<int32_t> question = tokens(5);
    conversation.insert(conversation.end(), question.begin(), question.end());
    const Request request = request_of(conversation, "a", 4);
    EXPECT_EQ(run(engine, request), std::ssize(conversation) - num_found) << "turn " << turn;
    const int64_t num_prompt = std::ssize(conversation);
    const std::vector<int32_t> answer = alone(request).token_ids;
    conversation.insert(conversation.end(), answer.begin(), answer.end());
    // The last token was drawn, and never computed.
    num_found = testing::is_on_cpu() ? std::ssize(conversation) - 1 : num_prompt;
  }
}

TEST_F(EnginePrefixes, AdaptersAreWhatTheyContain) {
  Engine engine = engine_with({});
  (void)engine.add_adapter("a again", a.folder.path().string());
  const std::vector<int32_t> prompt = tokens(18);
  EXPECT_EQ(run(engine, request_of(prompt, "a")), 18);
  EXPECT_EQ(run(engine, request_of(prompt)), 18);
  EXPECT_EQ(run(engine, request_of(prompt, "b")), 18);
  Request again = request_of(prompt, "a again");
  Completion answer = testing::run_all(engine, {again}).front();
  EXPECT_EQ(answer.cached_tokens, 17);
  testing::expect_same(answer, alone(request_of(prompt, "a")), "under another name");
  EXPECT_TRUE(engine.remove_adapter("a"));
  EXPECT_TRUE(engine.remove_adapter("a again"));
  (void)engine.add_adapter("a", a.folder.path().string());
  EXPECT_EQ(run(engine, request_of(prompt, "a")), 1) << "taken out and loaded";
  (void)engine.replace_adapter("a", b.folder.path().string());
  answer = testing::run_all(engine, {request_of(prompt, "a")}).front();
  EXPECT_EQ(answer.cached_tokens, 17) << "the pages of b";
  testing::expect_same(answer, alone(request_of(prompt, "b")), "other weights under the name");
}

TEST_F(EnginePrefixes, ScalesAndOrderOfAListCount) {
  Engine engine = engine_with({});
  const std::vector<int32_t> prompt = tokens(18);
  const AdapterList lists[] = {{{"a", 0.5f}},
                               {{"a", 1.0f}},
                               {{"a", 0.5f}, {"b", 2.0f}},
                               {{"b", 2.0f}, {"a", 0.5f}},
                               {{"a", 0.5f}, {"b", 1.0f}}};
  for (const AdapterList& list : lists) {
    Request request = request_of(prompt);
    request.adapters = list;
    EXPECT_EQ(run(engine, request), 18);
    EXPECT_EQ(run(engine, request), 1);
  }
  EXPECT_EQ(run(engine, request_of(prompt, "a")), 1) << "a list, scale 1";
}

TEST_F(EnginePrefixes, BeforeItsInvocationAnAloraHasTheBaseModelsPages) {
  Engine engine = engine_with({});
  std::vector<int32_t> prompt = tokens(22);
  prompt[13] = 7, prompt[14] = 8;
  EXPECT_EQ(run(engine, request_of(prompt)), 22);
  EXPECT_EQ(run(engine, request_of(prompt, "called")), 9) << "three pages, one key of the fourth";
  EXPECT_EQ(run(engine, request_of(prompt, "called")), 1);
  EXPECT_EQ(run(engine, request_of(prompt, "a")), 22);
  prompt[18] = 7, prompt[19] = 8;  // a later invocation: the first one no longer counts
  EXPECT_EQ(run(engine, request_of(prompt, "called")), 4);
}

/// They run at the same time. Each computes its invocation; the rest of the page is copied.
TEST_F(EnginePrefixes, AlorasOfOnePromptShareItUpToTheInvocation) {
  Engine engine = engine_with({.max_batch = 4});
  std::vector<std::string> names{"called"};
  std::vector<std::unique_ptr<testing::TinyAdapter>> more;
  for (int i = 0; i < 3; ++i) {
    more.push_back(std::make_unique<testing::TinyAdapter>(
        base, 2, std::vector<int>{llama::kQ, llama::kUp}, DType::kFloat32,
        R"(, "alora_invocation_tokens": [7, 8])"));
    names.push_back("called " + std::to_string(i));
    for (Engine* const each : {&engine, &cold}) {
      (void)each->add_adapter(names.back(), more.back()->folder.path().string());
    }
  }
  std::vector<int32_t> prompt = tokens(24);  // six whole pages
  prompt[22] = 7, prompt[23] = 8;
  std::vector<Request> requests;
  for (const std::string& name : names) requests.push_back(request_of(prompt, name));
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    testing::expect_same(answers[i], alone(requests[i]), names[i]);
  }
  EXPECT_EQ(engine.stats().prefill_tokens, 24 + 3 * 2);
}

TEST_F(EnginePrefixes, SaltsShareNothing) {
  Engine engine = engine_with({});
  Request request = request_of(tokens(18));
  for (const char* salt : {"", "one", "two"}) {
    request.cache_salt = salt;
    EXPECT_EQ(run(engine, request), 18) << salt;
    EXPECT_EQ(run(engine, request), 1) << salt;
  }
}

TEST_F(EnginePrefixes, WhatNeedsEveryTokenTakesNothing) {
  Engine engine = engine_with({});
  Request request = request_of(tokens(18));
  EXPECT_EQ(run(engine, request), 18);
  request.prompt_logprobs = true;
  EXPECT_EQ(run(engine, request), 18);
  const Completion got = testing::run_all(engine, {request}).front(), want = alone(request);
  ASSERT_EQ(got.prompt_logprobs.size(), 18u);
  EXPECT_TRUE(testing::same_bits<float>(std::span(got.prompt_logprobs).subspan(1),
                                        std::span(want.prompt_logprobs).subspan(1)));
  request.prompt_logprobs = false;
  EXPECT_EQ(run(engine, request), 1) << "others take what it has computed";
}

TEST_F(EnginePrefixes, NothingIsSharedWhereItIsTurnedOff) {
  Engine engine = engine_with({.prefix_cache = false});
  const Request request = request_of(tokens(18));
  EXPECT_EQ(run(engine, request), 18);
  EXPECT_EQ(run(engine, request), 18);
  EXPECT_EQ(engine.load().num_cached_pages, 0);
  EXPECT_EQ(engine.stats().prefix_tokens, 0);
}

TEST_F(EnginePrefixes, TwoAtOnceComputeTheirPrefixOnce) {
  for (const int chunk : {3, 4, 64}) {
    Engine engine = engine_with({.max_batch = 8, .prefill_chunk = chunk});
    const std::vector<int32_t> shared = tokens(24);
    std::vector<Request> requests;
    for (int i = 0; i < 5; ++i) {
      std::vector<int32_t> prompt = shared;
      const std::vector<int32_t> own = tokens(3 + i);
      prompt.insert(prompt.end(), own.begin(), own.end());
      requests.push_back(request_of(prompt, "a", 5));
    }
    const std::vector<Completion> answers = testing::run_all(engine, requests);
    int64_t num_own = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      testing::expect_same(answers[i], alone(requests[i]), "chunk " + std::to_string(chunk));
      num_own += answers[i].prompt_tokens - 24;
      EXPECT_EQ(answers[i].cached_tokens, i == 0 ? 0 : 24);
    }
    EXPECT_EQ(engine.stats().prefill_tokens, 24 + num_own) << "chunk " << chunk;
    EXPECT_EQ(engine.stats().cached_tokens, 4 * 24);
  }
}

/// Whoever is cancelled, paused or fails while others wait for its pages.
TEST_F(EnginePrefixes, OthersGoOnWhenTheOneThatComputesDoesNot) {
  const Request request = request_of(tokens(40), "b", 4);
  const Completion want = alone(request);
  for (const bool is_paused : {false, true}) {
    for (int num_steps = 0; num_steps < 8; ++num_steps) {
      Engine engine = engine_with({.max_batch = 4, .prefill_chunk = 6});
      std::vector<testing::Outcome> outcomes(3);
      const RequestId first = engine.submit(request);
      for (int i = 1; i < 3; ++i) (void)engine.submit(request);
      for (int i = 0; i < num_steps; ++i) testing::take(engine.step(), first, outcomes);
      if (is_paused) {
        EXPECT_TRUE(engine.set_paused(first, true));
      } else {
        EXPECT_TRUE(engine.cancel(first));
      }
      for (int i = 0; engine.num_unfinished() > (is_paused ? 1 : 0); ++i) {
        ASSERT_LT(i, 100);
        testing::take(engine.step(), first, outcomes);
      }
      for (size_t i = 1; i < 3; ++i) testing::expect_same(outcomes[i].completion, want, "other");
      if (!is_paused) continue;
      EXPECT_TRUE(engine.set_paused(first, false));
      while (engine.num_unfinished() > 0) testing::take(engine.step(), first, outcomes);
      testing::expect_same(outcomes[0].completion, want, "paused");
    }
  }
}

/// A cache for little more than one request: rows are parked and go on, pages are evicted, and the
/// answers are those of requests that run alone.
TEST_F(EnginePrefixes, ParkedRequestsHaveTheBitsOfThoseThatRunThrough) {
  Engine probe = engine_with({.max_batch = 1});
  const int64_t page_bytes = probe.options().kv_memory / probe.load().num_pages;
  for (const bool prefix_cache : {true, false}) {
    Engine engine =
        engine_with({.max_batch = 6, .kv_memory = 18 * page_bytes, .prefix_cache = prefix_cache});
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
      Request request = request_of(tokens(4 + i), i % 3 == 0 ? "" : (i % 3 == 1 ? "a" : "b"), 40);
      request.sampling = {.temperature = 1.0f, .seed = i};
      if (i % 4 == 1) request.sampling.frequency_penalty = 0.5f;
      if (i % 4 == 2) request.top_logprobs = 3;
      if (i == 3) request.prompt_logprobs = true;
      requests.push_back(request);
    }
    const std::vector<Completion> answers = testing::run_all(engine, requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      const Completion want = alone(requests[i]);
      testing::expect_same(answers[i], want, "request " + std::to_string(i));
      EXPECT_EQ(answers[i].top_token_ids, want.top_token_ids);
      EXPECT_TRUE(testing::same_bits<float>(answers[i].top_logprobs, want.top_logprobs));
      EXPECT_EQ(answers[i].prompt_logprobs.size(), want.prompt_logprobs.size());
    }
    EXPECT_GT(engine.stats().parkings, 3);
    EXPECT_EQ(engine.load().num_parked, 0);
  }
}

/// Random requests of few prefixes in engines of all kinds.
TEST_F(EnginePrefixes, AnyMixtureOfHitsAndMissesHasTheBitsOfAColdRun) {
  Engine probe = engine_with({.max_batch = 1});
  const int64_t page_bytes = probe.options().kv_memory / probe.load().num_pages;
  for (int round = 0; round < 12; ++round) {
    const bool is_tight = round % 2 == 0;
    Engine engine = engine_with({.max_batch = static_cast<int>(testing::random_int(1, 9)),
                                 .page_size = static_cast<int>(testing::random_int(1, 6)),
                                 .prefill_chunk = static_cast<int>(testing::random_int(1, 40)),
                                 .kv_memory = is_tight ? 20 * page_bytes : 0,
                                 .admit = round % 3 == 0 ? "longest" : "now"});
    const std::vector<int32_t> shared = tokens(30);
    std::vector<Request> requests;
    for (int i = 0; i < 14; ++i) {
      std::vector<int32_t> prompt(shared.begin(), shared.begin() + testing::random_int(1, 30));
      const std::vector<int32_t> own = tokens(testing::random_int(0, 6));
      prompt.insert(prompt.end(), own.begin(), own.end());
      const char* const adapters[] = {"", "a", "b", "called"};
      const size_t which = static_cast<size_t>(testing::random_int(0, 3));
      if (which == 3 && prompt.size() > 12) prompt[9] = 7, prompt[10] = 8;
      Request request = request_of(prompt, adapters[which], testing::random_int(1, 12));
      request.sampling = {.temperature = 1.0f, .seed = i};
      if (testing::random_int(0, 5) == 0) request.cache_salt = "salt";
      requests.push_back(request);
    }
    for (int again = 0; again < 2; ++again) {
      const std::vector<Completion> answers = testing::run_all(engine, requests);
      for (size_t i = 0; i < answers.size(); ++i) {
        testing::expect_same(answers[i], alone(requests[i]),
                             "round " + std::to_string(round) + ", request " + std::to_string(i));
      }
    }
    EXPECT_GT(engine.stats().cached_tokens, 0);
  }
}

/// Dynamic scaling: keys of a prompt depend on its length.
TEST(EngineWithoutPrefixes, AModelWhoseKeysDependOnTheLengthSharesNothingAndSaysSo) {
  const auto engine_with = [](EngineOptions options) {
    options.device = testing::test_device();
    return make_engine(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 300, "rms_norm_eps": 1e-06,
        "max_position_embeddings": 12, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})",
                       1, options);
  };
  testing::expect_unsupported({"kv_cache_dir is 'pages'"},
                              [&] { (void)engine_with({.kv_cache_dir = "pages"}); });
  Engine engine = engine_with({.page_size = 4});
  ASSERT_FALSE(engine.model().notes.empty());
  EXPECT_EQ(engine.model().notes.back(),
            "the model's rotation depends on the length of a sequence, so requests share no "
            "prefixes and start when there is room for their longest answer");
  EXPECT_EQ(engine.options().admit, "longest");
  const Request request = testing::endless_request(testing::random_tokens(18), 8);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(testing::run_all(engine, {request}).front().cached_tokens, 0);
  }
  EXPECT_EQ(engine.load().num_cached_pages, 0);
}

}  // namespace
}  // namespace heddle
