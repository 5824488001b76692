// Files of small random Llamas through the engine, against the same model in double: every setting
// that a file may have changes the logits, and changes them as the definition says.
#include <array>
#include <tuple>

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

using model::DecoderConfig;
using model::random_llama;
using model::ref::Llama;
using testing::request_of;

double error_of(const std::vector<float>& logits, const Llama& model,
                const std::vector<int32_t>& tokens) {
  return testing::relative_error<float>(logits, model::ref::logits(model, tokens));
}

/// The engine's logits are the model's for prompts that are prefilled at once and in chunks.
void expect_the_reference(const Llama& model) {
  const testing::TinyModel file(model);
  Engine engine = file.engine({.page_size = 3, .prefill_chunk = 5});
  for (const int64_t length : {1, 2, 5, 17, 29}) {
    const std::vector<int32_t> tokens = testing::random_tokens(length);
    EXPECT_LT(error_of(engine.prompt_logits(request_of(tokens)), model, tokens),
              testing::logits_tolerance())
        << length << " tokens";
  }
}

/// As above, and `other`, the model without the setting, differs after a prompt of 30 tokens. On
/// a GPU, whose errors may be as large as what the setting changes, it is the one further away.
void expect_the_setting_counts(const Llama& model, const Llama& other) {
  expect_the_reference(model);
  Engine engine = testing::TinyModel(model).engine();
  const std::vector<int32_t> tokens = testing::random_tokens(30);
  const std::vector<float> logits = engine.prompt_logits(request_of(tokens));
  const double least =
      testing::is_on_cpu() ? 100 * testing::logits_tolerance() : error_of(logits, model, tokens);
  EXPECT_GT(error_of(logits, other, tokens), least);
}

/// Of a setting of the configuration.
using Change = void (*)(DecoderConfig& config);
void expect_the_setting_counts(Change with, Change without) {
  DecoderConfig config = testing::tiny_config();
  with(config);
  const Llama model = random_llama(config, false);
  Llama plain = model;
  without(plain.config);
  expect_the_setting_counts(model, plain);
}

/// Keys are rounded after their rotation, once: a model that does so in double is much nearer than
/// one that does not. Not equal, since what lies between two numbers of 16 bits may go either way.
TEST(TinyModelLogits, KeysAndValuesAreRoundedToTheTypeOfTheCache) {
  if (!testing::is_on_cpu()) GTEST_SKIP() << "the cache has the type of the activations";
  const Llama model = random_llama(testing::tiny_config(), false);
  const std::vector<int32_t> tokens = testing::random_tokens(29);
  const testing::TinyModel file(model);
  for (const auto& [name, dtype, bound] :
       {std::tuple("f16", DType::kFloat16, 2e-3), std::tuple("bf16", DType::kBFloat16, 2e-2),
        std::tuple("fp8", DType::kFloat8E4M3, 0.2)}) {
    Llama rounded = model;
    rounded.kv_dtype = dtype;
    std::vector<float> logits;
    for (const int chunk : {64, 5}) {
      EngineOptions options{.page_size = chunk / 2, .prefill_chunk = chunk, .kv_type = name};
      const std::vector<float> now = file.engine(options).prompt_logits(request_of(tokens));
      EXPECT_TRUE(logits.empty() || logits == now) << "pages and chunks change no bit";
      logits = now;
    }
    const double error = error_of(logits, model, tokens);
    EXPECT_LT(error, bound) << name;
    EXPECT_LT(error_of(logits, rounded, tokens), error / 3) << name;
  }
}

TEST(TinyModelLogits, ACacheInFp8IsReadAsItWasWritten) {
  const Llama model = random_llama(testing::tiny_config(), false);
  const std::vector<int32_t> tokens = testing::random_tokens(29);
  const testing::TinyModel file(model);
  for (const int chunk : {64, 5, 1}) {  // one by one: the path of drawn tokens
    EngineOptions options{.page_size = 16, .prefill_chunk = chunk, .kv_type = "fp8"};
    const std::vector<float> logits = file.engine(options).prompt_logits(request_of(tokens));
    EXPECT_LT(error_of(logits, model, tokens), 0.3) << "chunks of " << chunk;
  }
}

TEST(TinyModelLogits, AnotherTypeOfTheCacheIsRefusedWithTheNames) {
  const testing::TinyModel file(random_llama(testing::tiny_config(), false));
  for (const std::string name : {"F16", "f64", "q8_0", "fp8_e5m2"}) {
    const std::string says = "kv_type is '" + name + "', expected one of f32, f16, bf16, fp8";
    testing::expect_invalid({says.c_str()}, [&] { (void)file.engine({.kv_type = name}); });
  }
}

TEST(TinyModelLogits, AHeadOfItsOwnIsTaken) {
  const Llama model = random_llama(testing::tiny_config(), true);
  Llama tied = model;
  tied.output.clear();
  expect_the_setting_counts(model, tied);
  expect_the_setting_counts(tied, model);
}

TEST(TinyModelLogits, PositionsAreScaledLinearly) {
  expect_the_setting_counts([](DecoderConfig& c) { c.rotations[0].params.scale = 4.0; },
                            [](DecoderConfig& c) { c.rotations[0].params.scale = 1.0; });
}

TEST(TinyModelLogits, FrequenciesAreDividedByTheFactorsOfTheFile) {
  Llama model = random_llama(testing::tiny_config(), false);
  model.rope_factors = {1.0, 1.5, 4.0, 0.25};
  Llama plain = model;
  plain.rope_factors.clear();
  expect_the_setting_counts(model, plain);
  model.config.rotations[0].params.scale = plain.config.rotations[0].params.scale =
      2.0;  // both at once
  expect_the_setting_counts(model, plain);
}

/// More pairs than are computed at once: factors of pairs 64 and up are their own.
TEST(TinyModelLogits, FactorsOfWideHeads) {
  DecoderConfig config = testing::tiny_config();
  config.head_dim = config.rotations[0].params.rotary_dim = 160;
  config.rotations[0].params.theta = 20.0;  // so that pairs 64 and up turn visibly
  Llama model = random_llama(config, false);
  for (int d = 0; d < 80; ++d) model.rope_factors.push_back(d < 64 ? 2.0 : 0.25);
  Llama repeated = model;
  std::fill(repeated.rope_factors.begin() + 64, repeated.rope_factors.end(), 2.0);
  expect_the_setting_counts(model, repeated);
}

TEST(TinyModelLogits, BaseOfTheFrequencies) {
  expect_the_setting_counts([](DecoderConfig& c) { c.rotations[0].params.theta = 50.0; },
                            [](DecoderConfig& c) { c.rotations[0].params.theta = 1e4; });
}

TEST(TinyModelLogits, PartOfAHeadTurns) {
  expect_the_setting_counts(
      [](DecoderConfig& c) { c.head_dim = 10, c.rotations[0].params.rotary_dim = 6; },
      [](DecoderConfig& c) { c.rotations[0].params.rotary_dim = 10; });
}

TEST(TinyModelLogits, EpsilonOfTheNorm) {
  expect_the_setting_counts([](DecoderConfig& c) { c.rms_epsilon = 0.25f; },
                            [](DecoderConfig& c) { c.rms_epsilon = 1e-5f; });
}

TEST(TinyModelLogits, HeadsOfEveryGroupingAndWidth) {
  for (const auto& [q_heads, kv_heads, head_dim] :
       {std::array{4, 4, 6}, std::array{5, 1, 2}, std::array{6, 3, 10}}) {
    SCOPED_TRACE(::testing::Message() << q_heads << " " << kv_heads << " " << head_dim);
    DecoderConfig config = testing::tiny_config();
    config.num_q_heads = q_heads;
    config.num_kv_heads = kv_heads;
    config.head_dim = config.rotations[0].params.rotary_dim = head_dim;
    expect_the_reference(random_llama(config, true));
  }
}

TEST(TinyModelLogits, AnswersAreGreedyWithTheirLogProbabilities) {
  DecoderConfig config = testing::tiny_config();
  config.rotations[0].params.scale = 2.0;
  Llama model = random_llama(config, true);
  model.rope_factors = {1.0, 1.0, 2.0, 3.0};
  Engine engine = testing::TinyModel(model).engine({.max_batch = 3, .page_size = 2});
  std::vector<Request> requests;
  for (const int64_t length : {1, 4, 9, 14, 23}) {
    requests.push_back(request_of(testing::random_tokens(length), 12));
  }
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(answers[i].token_ids.size(), 12u) << answers[i].error;
    testing::expect_greedy(answers[i], model, *requests[i].token_ids);
  }
}

}  // namespace
}  // namespace heddle
