// Rotations that depend on the length of the sequence, at the length where they change: Phi-3's two
// lists of factors and the dynamic scaling of transformers.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/engine_cases.h"
#include "engine/test/test_device.h"
#include "random.h"

namespace heddle {
namespace {

constexpr int64_t kOriginal = 12;

/// Heads of 16, so that 8 pairs turn. Weights are of one seed.
Engine engine_of(const std::string& more, int64_t context) {
  const std::string config = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
      "hidden_size": 64,
      "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 300, "rms_norm_eps": 1e-06, "max_position_embeddings": )" +
                             std::to_string(context) + more + "}";
  return make_engine(config, 1,
                     {.device = testing::test_device(),
                      .max_batch = 2,
                      .num_threads = 2,
                      .page_size = 4,
                      .prefill_chunk = 5});
}

Engine with_factors(const std::string& short_factors, const std::string& long_factors) {
  return engine_of(R"(, "original_max_position_embeddings": )" + std::to_string(kOriginal) +
                       R"(, "rope_scaling": {"type": "longrope", "attention_factor": 1.25,
                           "short_factor": )" +
                       short_factors + R"(, "long_factor": )" + long_factors + "}",
                   64);
}

constexpr const char* kShort = "[1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]";
constexpr const char* kLong = "[2, 4, 8, 9, 9, 9, 9, 9]";

std::vector<int32_t> prompt_of(int64_t length) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<int32_t>(testing::random_int(0, 299)));
  }
  return tokens;
}

TEST(RotationBounds, TheOriginalContextIsShort) {
  Engine both = with_factors(kShort, kLong), all_short = with_factors(kShort, kShort),
         all_long = with_factors(kLong, kLong);
  for (int64_t length = kOriginal - 1; length <= kOriginal + 1; ++length) {
    const Request request = testing::endless_request(prompt_of(length), 1);
    const std::vector<float> logits = both.prompt_logits(request);
    const std::vector<float> of_short = all_short.prompt_logits(request);
    const std::vector<float> of_long = all_long.prompt_logits(request);
    const bool is_long = length > kOriginal;
    EXPECT_EQ(testing::same_bits<float>(logits, of_short), !is_long) << length;
    EXPECT_EQ(testing::same_bits<float>(logits, of_long), is_long) << length;
  }
}

/// A row that grows beyond it is computed anew: each token is the one that a prompt of all before
/// it gives, on the CPU bit for bit. On a GPU decode adds in another order than prefill does.
TEST(RotationBounds, AnAnswerThatCrossesItIsThatOfItsTokensAsAPrompt) {
  Engine engine = with_factors(kShort, kLong);
  for (const int64_t length : {kOriginal - 3, kOriginal - 1, kOriginal, kOriginal + 1}) {
    Request request = testing::endless_request(prompt_of(length), 6);
    const Completion answer = testing::run_all(engine, {request}).front();
    ASSERT_EQ(answer.token_ids.size(), 6u);
    for (size_t i = 0; i < answer.token_ids.size(); ++i) {
      request.max_tokens = 1;
      const Completion next = testing::run_all(engine, {request}).front();
      EXPECT_EQ(next.token_ids.front(), answer.token_ids[i]) << length << ", token " << i;
      EXPECT_NEAR(next.logprobs.front(), answer.logprobs[i], testing::is_on_cpu() ? 0.0 : 2e-3)
          << length << ", token " << i;
      request.token_ids->push_back(answer.token_ids[i]);
    }
  }
}

/// Up to the context that is stated nothing is scaled, that length included.
TEST(RotationBounds, DynamicScalingBeginsBehindTheContext) {
  Engine plain = engine_of("", kOriginal + 8);
  Engine dynamic =
      engine_of(R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0})", kOriginal);
  EXPECT_EQ(dynamic.options().max_context, 4 * kOriginal);
  for (int64_t length = kOriginal - 1; length <= kOriginal + 1; ++length) {
    const Request request = testing::endless_request(prompt_of(length), 1);
    EXPECT_EQ(
        testing::same_bits<float>(dynamic.prompt_logits(request), plain.prompt_logits(request)),
        length <= kOriginal)
        << length;
  }
}

}  // namespace
}  // namespace heddle
