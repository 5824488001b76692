// Requests that want numbers in place of an answer: embeddings, classes and scores of tokens.
#include <algorithm>
#include <cmath>
#include <deque>

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/test/adapter_kinds.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using Kind = WantedValues::Kind;
using model::ref::Llama;
using With = testing::KindAdapter::With;

Request wanting(const WantedValues& values, std::vector<int32_t> tokens, std::string adapter = "") {
  Request request;
  request.token_ids = std::move(tokens);
  request.adapter = std::move(adapter);
  request.values = values;
  return request;
}

/// The hidden states after the last norm, pooled.
std::vector<double> pooled(const Llama& model, const std::vector<int32_t>& tokens,
                           std::string_view pooling, bool normalize) {
  std::vector<std::vector<double>> states = model::ref::hidden_states(model, tokens);
  for (auto& state : states) state = model::ref::normed(model.config, state, model.output_norm);
  std::vector<double> sum = states.back();
  if (pooling == "cls") sum = states.front();
  if (pooling == "mean") {
    std::ranges::fill(sum, 0.0);
    for (const auto& state : states) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += state[i] / double(states.size());
    }
  }
  double squares = 0;
  for (const double x : sum) squares += x * x;
  for (double& x : sum) x /= normalize ? std::sqrt(squares) : 1.0;
  return sum;
}

std::vector<double> log_softmax(std::vector<double> logits) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  for (double& x : logits) x -= std::log(sum);
  return logits;
}

class Values : public ::testing::Test {
 protected:
  static constexpr int64_t kLabels = 3;

  Engine engine_with(const EngineOptions& options = {}) {
    Engine made = file.engine(options);
    (void)made.add_adapter("plain", plain.folder.path().string());
    (void)made.add_adapter("judge", judge_folder);
    return made;
  }
  static Completion run(Engine& engine, const Request& request) {
    return testing::run_all(engine, {request}).front();
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  testing::TinyModel file{base};
  testing::TinyAdapter plain{base, 2, {llama::kQ, llama::kDown}};
  testing::KindAdapter judge{base};
  std::vector<double> score =
      judge.projections({llama::kV, llama::kUp}, With::kNothing).score(kLabels);
  std::string judge_folder = judge.write();
};

TEST_F(Values, AnEmbeddingIsThatOfTheDefinitionWithAndWithoutAnAdapter) {
  Engine engine = engine_with({.page_size = 3, .prefill_chunk = 5});
  for (const std::string pooling : {"last", "mean", "cls"}) {
    for (const int64_t length : {1, 4, 5, 23}) {
      const bool normalize = testing::random_int(0, 1) == 1;
      const std::vector<int32_t> tokens = testing::random_tokens(length);
      const WantedValues wanted{
          .kind = Kind::kEmbedding, .pooling = pooling, .normalize = normalize};
      const Completion alone = run(engine, wanting(wanted, tokens));
      const Completion adapted = run(engine, wanting(wanted, tokens, "plain"));
      EXPECT_EQ(alone.finish_reason, FinishReason::kStop) << alone.error;
      EXPECT_TRUE(alone.token_ids.empty());
      EXPECT_TRUE(alone.labels.empty());
      EXPECT_EQ(alone.prompt_tokens, length);
      const double bound = testing::logits_tolerance();
      EXPECT_LT(
          testing::relative_error<float>(alone.values, pooled(base, tokens, pooling, normalize)),
          bound)
          << pooling << " of " << length;
      EXPECT_LT(testing::relative_error<float>(adapted.values,
                                               pooled(plain.merged, tokens, pooling, normalize)),
                bound)
          << pooling << " of " << length;
    }
  }
}

TEST_F(Values, WithoutFurtherWordsAnEmbeddingIsTheLastStateNormalized) {
  Engine engine = engine_with();
  const std::vector<int32_t> tokens = testing::random_tokens(9);
  const Completion got = run(engine, wanting({.kind = Kind::kEmbedding}, tokens));
  EXPECT_LT(testing::relative_error<float>(got.values, pooled(base, tokens, "last", true)),
            testing::logits_tolerance());
}

TEST_F(Values, DimensionsAreTheFirstOnesAndNormalizedAfterwards) {
  Engine engine = engine_with();
  const std::vector<int32_t> tokens = testing::random_tokens(9);
  std::vector<double> want = pooled(base, tokens, "mean", false);
  want.resize(7);
  double squares = 0;
  for (const double x : want) squares += x * x;
  for (double& x : want) x /= std::sqrt(squares);
  const Completion got =
      run(engine, wanting({.kind = Kind::kEmbedding, .pooling = "mean", .dimensions = 7}, tokens));
  ASSERT_EQ(got.values.size(), 7u);
  EXPECT_LT(testing::relative_error<float>(got.values, want), testing::logits_tolerance());
}

TEST_F(Values, ClassesAreThoseOfTheAdaptersHead) {
  Engine engine = engine_with();
  const std::vector<int32_t> tokens = testing::random_tokens(11);
  std::vector<double> want = model::ref::matvec(score, pooled(judge.merged, tokens, "last", false));
  const Completion logits =
      run(engine, wanting({.kind = Kind::kClasses, .activates = false}, tokens, "judge"));
  EXPECT_LT(testing::relative_error<float>(logits.values, want), testing::logits_tolerance());
  EXPECT_EQ(logits.labels, (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  for (double& x : want = log_softmax(want)) x = std::exp(x);
  const Completion classes = run(engine, wanting({.kind = Kind::kClasses}, tokens, "judge"));
  EXPECT_LT(testing::relative_error<float>(classes.values, want), 10 * testing::logits_tolerance());
}

TEST_F(Values, TokenScoresAreLogProbabilitiesOfWhatComesNext) {
  Engine engine = engine_with();
  const std::vector<int32_t> tokens = testing::random_tokens(11), asked{5, 200, 5, 0};
  const std::vector<double> logits = model::ref::logits(plain.merged, tokens);
  const std::vector<double> all = log_softmax(logits);
  const Completion got =
      run(engine, wanting({.kind = Kind::kTokenScores, .token_ids = asked}, tokens, "plain"));
  ASSERT_EQ(got.values.size(), asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_NEAR(got.values[i], all[size_t(asked[i])], testing::logprob_tolerance(logits)) << i;
  }
}

/// Values are of one adapter: requests that wait or run end with the one that they were submitted
/// with, while those that generate go on with the new one.
TEST_F(Values, ASwitchOfTheAdapterLeavesThemWhatTheyBeganWith) {
  const testing::TinyAdapter other(base, 5, {llama::kK, llama::kO});
  testing::KindAdapter other_judge(base);
  (void)other_judge.projections({llama::kQ}, With::kNothing).score(kLabels);
  const std::vector<std::pair<std::string, std::string>> to = {
      {"plain", other.folder.path().string()}, {"judge", other_judge.write()}};
  std::vector<Request> wanted;
  for (const int64_t length : {30, 31}) {
    const auto tokens = testing::random_tokens(length);
    for (const char* pooling : {"last", "mean", "cls"}) {
      wanted.push_back(wanting({.kind = Kind::kEmbedding, .pooling = pooling}, tokens, "plain"));
    }
    wanted.push_back(wanting({.kind = Kind::kTokenScores, .token_ids = {1, 2}}, tokens, "plain"));
    wanted.push_back(wanting({.kind = Kind::kClasses}, tokens, "judge"));
  }
  std::vector<Completion> before, after;
  for (std::vector<Completion>* to_fill : {&before, &after}) {
    Engine alone = engine_with({.max_batch = 1, .prefix_cache = false});
    if (to_fill == &after) {
      for (const auto& [name, folder] : to) (void)alone.replace_adapter(name, folder);
    }
    for (const Request& request : wanted) to_fill->push_back(run(alone, request));
  }
  Engine engine = engine_with({.max_batch = 6, .prefill_chunk = 8});  // the last ones wait
  Request generating = testing::endless_request(testing::random_tokens(9), 20);
  generating.adapter = "plain";
  std::vector<testing::Outcome> outcomes(2 * wanted.size() + 1);
  const auto submit_all = [&] {
    for (const Request& request : wanted) (void)engine.submit(request);
  };
  const RequestId first = engine.submit(generating);
  submit_all();
  testing::take(engine.step(), first, outcomes);
  for (const auto& [name, folder] : to) {
    (void)engine.replace_adapter(name, folder, RunningRequests::kSwitch);
  }
  submit_all();
  for (int i = 0; engine.num_unfinished() > 0 && i < testing::kTooManySteps; ++i) {
    testing::take(engine.step(), first, outcomes);
  }
  EXPECT_EQ(outcomes.front().completion.adapter_switches.size(), 1u);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Completion& kept = outcomes[1 + i].completion;
    const Completion& later = outcomes[1 + wanted.size() + i].completion;
    EXPECT_FALSE(testing::same_bits<float>(before[i].values, after[i].values)) << i;
    EXPECT_TRUE(testing::same_bits<float>(kept.values, before[i].values)) << i << kept.error;
    EXPECT_EQ(kept.adapter_digest, before[i].adapter_digest) << i;
    EXPECT_TRUE(kept.adapter_switches.empty()) << i;
    EXPECT_TRUE(testing::same_bits<float>(later.values, after[i].values)) << i << later.error;
    EXPECT_EQ(later.adapter_digest, after[i].adapter_digest) << i;
  }
}

/// What surrounds a row shows in none of its bits: the batch, chunks, pages, and being parked.
TEST_F(Values, BitsDoNotDependOnTheBatchTheChunksOrThePages) {
  std::vector<Request> wanted;
  for (const std::string adapter : {"", "plain", "judge"}) {
    for (const char* pooling : {"last", "mean", "cls"}) {
      wanted.push_back(wanting({.kind = Kind::kEmbedding, .pooling = pooling},
                               testing::random_tokens(testing::random_int(1, 40)), adapter));
    }
    wanted.push_back(wanting({.kind = Kind::kTokenScores, .token_ids = {1, 2, 3}},
                             testing::random_tokens(21), adapter));
  }
  wanted.push_back(wanting({.kind = Kind::kClasses}, testing::random_tokens(30), "judge"));
  std::vector<Completion> alone;
  {
    Engine engine = engine_with({.max_batch = 1, .page_size = 16, .prefill_chunk = 64});
    for (const Request& request : wanted) alone.push_back(run(engine, request));
  }
  for (const int chunk : {3, 8, 64}) {
    EngineOptions options{.max_batch = 32, .page_size = chunk, .prefill_chunk = chunk};
    if (chunk == 3) options.kv_memory = 64 * 1024;  // so that some are parked
    Engine engine = engine_with(options);
    std::vector<Request> all = wanted;
    for (int i = 0; i < 6; ++i) {
      all.insert(all.begin() + i * 2,
                 testing::endless_request(testing::random_tokens(5 + 3 * i), 9 + i));
      all[size_t(i) * 2].adapter = i % 2 == 0 ? "plain" : "";
    }
    const std::vector<Completion> got = testing::run_all(engine, all);
    size_t next = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].values.kind == Kind::kNone) continue;
      EXPECT_TRUE(testing::same_bits<float>(got[i].values, alone[next].values))
          << "request " << next << ", chunks of " << chunk << ": " << got[i].error;
      ++next;
    }
  }
}

/// The last state alone is wanted, so the pages before it may be another row's.
TEST_F(Values, RowsShareTheirPrefix) {
  Engine engine = engine_with({.page_size = 4});
  const std::vector<int32_t> tokens = testing::random_tokens(21);
  const Request last = wanting({.kind = Kind::kEmbedding, .pooling = "last"}, tokens);
  const Request mean = wanting({.kind = Kind::kEmbedding, .pooling = "mean"}, tokens);
  const Completion first = run(engine, last), second = run(engine, last);
  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_GE(second.cached_tokens, 20);
  EXPECT_TRUE(testing::same_bits<float>(first.values, second.values));
  EXPECT_EQ(run(engine, mean).cached_tokens, 0);
}

/// One prompt through several aLoRAs at once: what comes before their invocation is computed once,
/// to the token, and what comes after by each of them, with the bits that it has alone.
TEST_F(Values, JudgesShareAPromptUpToTheirInvocation) {
  constexpr int64_t kJudges = 6, kInvocation = 41, kTokens = 45;
  std::vector<int32_t> tokens = testing::random_tokens(kTokens);
  for (int32_t& token : tokens) token = std::max(token, 9);
  tokens[kInvocation] = 7;
  tokens[kInvocation + 1] = 8;
  std::deque<testing::TinyAdapter> judges;
  Engine engine = engine_with({.max_batch = 8, .page_size = 16});
  Engine alone = engine_with({.max_batch = 8, .page_size = 16, .prefix_cache = false});
  std::vector<RequestVariant> each;
  for (int64_t i = 0; i < kJudges; ++i) {
    const testing::TinyAdapter& made =
        judges.emplace_back(base, 2, std::vector<int>{llama::kQ, llama::kV}, DType::kFloat32,
                            R"(, "alora_invocation_tokens": [7, 8])");
    const std::string name = "judge " + std::to_string(i);
    for (Engine* to : {&engine, &alone}) (void)to->add_adapter(name, made.folder.path().string());
    each.push_back({.adapters = {{.name = name}}});
  }
  const Request request = wanting({.kind = Kind::kTokenScores, .token_ids = {1, 2}}, tokens);
  const std::vector<RequestId> ids = engine.submit_each(request, each);
  std::vector<testing::Outcome> outcomes(ids.size());
  for (int i = 0; engine.num_unfinished() > 0 && i < testing::kTooManySteps; ++i) {
    testing::take(engine.step(), ids.front(), outcomes);
  }
  EXPECT_EQ(engine.stats().prefill_tokens, kTokens + (kJudges - 1) * (kTokens - kInvocation));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    Request one = request;
    one.adapter = each[i].adapters.front().name;
    const Completion want = run(alone, one);
    ASSERT_EQ(want.values.size(), 2u) << want.error;
    EXPECT_TRUE(testing::same_bits<float>(outcomes[i].completion.values, want.values)) << i;
    EXPECT_EQ(outcomes[i].completion.cached_tokens, i == 0 ? 0 : kInvocation);
  }
}

TEST_F(Values, APromptMayFillTheContext) {
  Engine engine = engine_with({.max_context = 20});
  const Completion got = run(
      engine, wanting({.kind = Kind::kEmbedding, .pooling = "mean"}, testing::random_tokens(20)));
  EXPECT_EQ(got.error, "");
  const Completion longer =
      run(engine, wanting({.kind = Kind::kEmbedding}, testing::random_tokens(21)));
  EXPECT_EQ(longer.error, "the prompt has 21 tokens, the context holds 20");
}

TEST_F(Values, WhatCannotBeGivenEndsTheRequestWithASentence) {
  Engine engine = engine_with();
  const auto error_of = [&](const WantedValues& values, auto change) {
    Request request = wanting(values, testing::random_tokens(4));
    change(request);
    const Completion got = run(engine, request);
    EXPECT_EQ(got.finish_reason, FinishReason::kError);
    EXPECT_TRUE(got.values.empty());
    return got.error;
  };
  const auto as_it_is = [](Request&) {};
  EXPECT_EQ(error_of({.kind = Kind::kEmbedding, .pooling = "max"}, as_it_is),
            "pooling is 'max', expected last, mean or cls");
  EXPECT_EQ(error_of({.kind = Kind::kEmbedding, .dimensions = 25}, as_it_is),
            "dimensions is 25, expected 1 to 24 (0: all)");
  EXPECT_EQ(error_of({.kind = Kind::kTokenScores, .token_ids = {256}}, as_it_is),
            "values.token_ids has token 256, the vocabulary has 256");
  EXPECT_EQ(error_of({.kind = Kind::kTokenScores}, as_it_is),
            "values.token_ids has 0 tokens, expected 1 to 128");
  EXPECT_EQ(error_of({.kind = Kind::kEmbedding}, [](Request& r) { r.top_logprobs = 1; }),
            "top_logprobs is given, which is for answers; the request wants values");
  EXPECT_EQ(error_of({.kind = Kind::kClasses, .dimensions = 3}, as_it_is),
            "pooling, normalize and dimensions are for embeddings alone");
  EXPECT_TRUE(error_of({.kind = Kind::kClasses}, as_it_is)
                  .starts_with("neither the model nor the adapter has a score head"));
}

}  // namespace
}  // namespace heddle
