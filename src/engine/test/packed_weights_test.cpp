// EngineOptions::weights: a model that is packed on load computes what its packed weights say.
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"
#include "heddle/ops/linear.h"

#include "core/device_bytes.h"
#include "engine/face/engine_options.h"
#include "engine/runner/engine_context.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"
#include "model/source/made_model.h"
#include "model/weights/decoder_weights.h"

namespace heddle {
namespace {

model::DecoderConfig whole_blocks() {
  model::DecoderConfig config = testing::tiny_config();
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_q_heads = 4;
  return config;
}

/// Values of a type in place of those of a matrix.
void round_to(WeightType type, std::vector<double>& values) {
  std::vector<float> f32(values.begin(), values.end());
  std::vector<std::byte> stored(stored_bytes(type, std::ssize(f32)));
  quantize({}, stored, type, f32);
  dequantize(f32, type, stored);
  values.assign(f32.begin(), f32.end());
}

TEST(PackedWeights, GiveTheLogitsOfAModelWithTheirValues) {
  const std::pair<const char*, WeightType> cases[] = {
      {"q8_0", WeightType::kQ8_0}, {"q5_1", WeightType::kQ5_1}, {"q5_0", WeightType::kQ5_0},
      {"q4_1", WeightType::kQ4_1}, {"q4_0", WeightType::kQ4_0}, {"f16", WeightType::kF16},
      {"bf16", WeightType::kBF16}};
  const model::ref::Llama given = model::random_llama(whole_blocks(), true);
  const Request request = testing::request_of(testing::random_tokens(20));
  const std::vector<float> as_stored = testing::TinyModel(given).engine().prompt_logits(request);
  for (const auto& [name, type] : cases) {
    model::ref::Llama rounded = given;
    round_to(type, rounded.embedding);
    round_to(type, rounded.output);
    for (model::ref::Layer& layer : rounded.layers) {
      for (std::vector<double>& matrix : layer.projection) round_to(type, matrix);
    }
    EngineOptions options;
    options.weights = name;
    int num_calls = 0;
    options.on_load = [&num_calls](int64_t, int64_t) { ++num_calls; };
    Engine engine = testing::TinyModel(given).engine(options);
    EXPECT_GT(num_calls, 0);
    EXPECT_FALSE(engine.options().on_load);
    const std::vector<float> logits = engine.prompt_logits(request);
    if (testing::is_on_cpu()) {
      EXPECT_EQ(logits, testing::TinyModel(rounded).engine().prompt_logits(request)) << name;
    } else {  // where the rounded values would be rounded again
      const auto want = model::ref::logits(rounded, *request.token_ids);
      EXPECT_LT(testing::relative_error<float>(logits, want), testing::logits_tolerance()) << name;
    }
    if (testing::is_on_cpu() || type != WeightType::kBF16) {
      EXPECT_NE(logits, as_stored) << name;
    }
    EXPECT_EQ(engine.model().weights, heddle::name(type));
    EXPECT_EQ(engine.model().packed_from, "F32");
    EXPECT_EQ(engine.model().num_kept_matrices, 0);
    EXPECT_GT(engine.model().weight_error, 1e-5) << name;
    EXPECT_LT(engine.model().weight_error, 0.12) << name;
  }
}

/// EngineOptions::activations: near the reference but not f32's bits, and the same bits for chunks,
/// threads and a batch.
TEST(PackedWeights, TakeActivationsInInt8) {
  if (!testing::is_on_cpu()) GTEST_SKIP() << "a GPU has no such choice";
  const testing::TinyModel file(model::random_llama(whole_blocks(), true));
  const Request request = testing::request_of(testing::random_tokens(20));
  for (const char* type : {"q8_0", "q4_0", "q5_1"}) {
    EngineOptions options;
    options.weights = type;
    const std::vector<float> f32 = file.engine(options).prompt_logits(request);
    options.activations = "int8";
    Engine engine = file.engine(options);
    const std::vector<float> int8 = engine.prompt_logits(request);
    EXPECT_EQ(engine.options().activations, "int8");
    const std::vector<double> want(f32.begin(), f32.end());
    const double error = testing::relative_error<float>(int8, want);
    EXPECT_GT(error, 1e-5) << type;
    EXPECT_LT(error, 0.05) << type;
    options.prefill_chunk = 3;
    options.num_threads = 3;
    EXPECT_EQ(file.engine(options).prompt_logits(request), int8) << type;
  }
}

TEST(PackedWeights, RefuseActivationsThatNoMatrixTakes) {
  const testing::TinyModel file(model::random_llama(whole_blocks(), true));
  EngineOptions options;
  options.activations = "int4";
  testing::expect_invalid({"activations is 'int4', expected f32 or int8"},
                          [&] { (void)file.engine(options); });
  options.activations = "int8";
  testing::expect_invalid(
      {testing::is_on_cpu() ? "no matrix is in a block format" : "a GPU has no such choice"},
      [&] { (void)file.engine(options); });
}

TEST(PackedWeights, AreNotAskedForByDefault) {
  const Engine engine = testing::TinyModel(model::random_llama(whole_blocks(), true)).engine();
  EXPECT_EQ(engine.model().weights, "");
  EXPECT_EQ(engine.model().weight_error, 0.0);
}

TEST(PackedWeights, AnUnknownTypeIsRefusedWithTheNames) {
  EngineOptions options;
  options.weights = "q4_k";
  const testing::TinyModel model(model::random_llama(whole_blocks(), true));
  testing::expect_invalid(
      {"weights is 'q4_k', expected one of q8_0, q5_1, q5_0, q4_1, q4_0, f16, bf16"},
      [&] { (void)model.engine(options); });
}

/// Matrices come to the device piece by piece: one of 40,007 rows is several, on a GPU, too.
TEST(PackedWeights, ComeWholeInSeveralPieces) {
  constexpr const char* kWide =
      R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 512,
          "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 40007,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-06, "tie_word_embeddings": true})";
  EngineContext context(device_of({.device = testing::test_device()}), 3);
  const ScopedDevice on_device(context.exec().device);
  for (const WeightType type : {WeightType::kBF16, WeightType::kQ8_0}) {
    const model::MadeModel files(kWide, 5, type);
    const model::DecoderWeights weights =
        model::load_weights(context.exec(), files.weights(), files.config(), files.tensor_names());
    const model::Matrix& matrix = weights.embedding;
    const model::StoredTensor tensor = files.weights().tensor(files.tensor_names().embedding);
    std::vector<std::byte> stored(tensor.num_bytes);
    files.weights().read(tensor, 0, stored);
    std::vector<std::byte> want = stored;
    if (!matrix.rows) {
      want.resize(packed_bytes(type, matrix.out_features, matrix.in_features));
      pack_rows({}, want, type, matrix.out_features, matrix.in_features, 0, matrix.out_features,
                stored);
    }
    std::vector<std::byte> got(want.size());
    copy_to_host(context.exec(), got, matrix.rows ? matrix.rows.raw() : matrix.data);
    EXPECT_TRUE(got == want) << type;
    EXPECT_GT(weights.read_bytes, std::ssize(stored));
  }
}

}  // namespace
}  // namespace heddle
