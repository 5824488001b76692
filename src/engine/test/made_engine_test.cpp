#include "engine/face/made_engine.h"

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/test/engine_cases.h"
#include "engine/test/test_device.h"
#include "expect_error.h"

namespace heddle {
namespace {

constexpr const char* kQwen3 = R"({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2,
  "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "vocab_size": 300, "max_position_embeddings": 64, "rms_norm_eps": 1e-06})";

Engine made(uint64_t seed, const std::string& weights = "") {
  return make_engine(kQwen3, seed,
                     {.device = testing::test_device(), .num_threads = 2, .weights = weights});
}

std::vector<float> logits(uint64_t seed) {
  return made(seed).prompt_logits(testing::endless_request({299, 0, 7}, 1));
}

TEST(MadeEngine, ASeedMakesOneModel) {
  const std::vector<float> first = logits(1);
  EXPECT_EQ(first.size(), 300u);
  EXPECT_TRUE(testing::same_bits<float>(first, logits(1)));
  EXPECT_FALSE(testing::same_bits<float>(first, logits(2)));
  for (const float logit : first) EXPECT_LT(std::abs(logit), 100.0f);
}

TEST(MadeEngine, HasTheShapeOfTheConfig) {
  const Engine engine = made(0);
  const ModelInfo& model = engine.model();
  EXPECT_EQ(model.architecture, "qwen3");
  const int64_t norms = 64 + 2 * (64 + 64 + 32 + 32);
  const int64_t matrices = 2 * 300 * 64 + 2 * (64 * (128 + 64 + 64 + 128) + 3 * 64 * 96);
  EXPECT_EQ(model.num_parameters, matrices + norms);
  EXPECT_GE(model.weight_bytes, 2 * matrices);
  EXPECT_EQ(model.context_length, 64);
}

TEST(MadeEngine, ATypeTakesItsBytes) {
  const auto bytes = [](const std::string& weights) {
    return made(0, weights).model().weight_bytes;
  };
  const int64_t in_bf16 = bytes("");
  EXPECT_EQ(bytes("f16"), in_bf16);
  EXPECT_LT(bytes("q8_0"), in_bf16 * 6 / 10);  // 34 bytes for 64
  EXPECT_LT(bytes("q4_0"), in_bf16 * 4 / 10);  // 18
}

TEST(MadeEngine, AnswersInRowsAndOfAnyType) {
  for (const char* weights : {"", "f16", "q4_0"}) {
    Engine engine = made(3, weights);
    const std::vector<Request> requests = {testing::endless_request({1, 2}, 5),
                                           testing::endless_request({3}, 5)};
    for (const Completion& answer : testing::run_all(engine, requests)) {
      EXPECT_EQ(answer.token_ids.size(), 5u) << weights;
      EXPECT_EQ(answer.error, "") << weights;
    }
  }
}

TEST(MadeEngine, RefusesWhatItCannotMake) {
  const auto refused = [](const std::string& architecture) {
    const std::string config =
        R"({"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 96,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
            "max_position_embeddings": 64, "architectures": [")" +
        architecture + "\"]}";
    (void)make_engine(config, 0, {.device = "cpu"});
  };
  testing::expect_invalid({"made: models of family qwen2 have fused or biased products"},
                          [&] { refused("Qwen2ForCausalLM"); });
  testing::expect_unsupported({"made", "NoSuchForCausalLM"}, [&] { refused("NoSuchForCausalLM"); });
  testing::expect_invalid({"made"}, [] { (void)make_engine("{", 0, {}); });
  const std::string odd =
      R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 40,
          "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 300,
          "max_position_embeddings": 64})";
  testing::expect_invalid(
      {"made: rows of ", "have 40 elements", "not a whole number of blocks of Q8_0"},
      [&] { (void)make_engine(odd, 0, {.device = "cpu", .weights = "q8_0"}); });
}

}  // namespace
}  // namespace heddle
