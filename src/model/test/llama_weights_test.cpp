// Weights of a file: each in its place, and none without one.
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/source/gguf_model.h"
#include "model/test/llama_file.h"
#include "model/weights/decoder_weights.h"
#include "readers/clean_message.h"

namespace heddle::model {
namespace {

DecoderConfig small_config() {
  return llama::rotating({.num_layers = 2,
                          .hidden_size = 12,
                          .intermediate_size = 20,
                          .num_q_heads = 2,
                          .num_kv_heads = 1,
                          .head_dim = 6,
                          .vocab_size = 17,
                          .context_length = 32});
}

GgufModel view_of(const std::string& text) { return {std::as_bytes(std::span(text)), "m.gguf"}; }

DecoderWeights load(const std::string& text, const LoadOptions& options = {}) {
  const GgufModel model = view_of(text);
  return load_weights({}, model.weights(), model.config(), model.tensor_names(), options);
}

/// Rows of a packed matrix as f32.
std::vector<float> rows_of(const Matrix& weight, const std::vector<int32_t>& rows) {
  std::vector<float> values(rows.size() * static_cast<size_t>(weight.in_features));
  const auto n = std::ssize(rows);
  embedding({}, host_view(values.data(), {n, weight.in_features}), host_view(rows.data(), {n}),
            weight);
  return values;
}

void expect_rows(const Matrix& weight, const std::vector<double>& want) {
  std::vector<int32_t> rows(static_cast<size_t>(weight.out_features));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  EXPECT_EQ(rows_of(weight, rows), std::vector<float>(want.begin(), want.end()));
}

TEST(DecoderWeights, EveryMatrixIsInItsPlace) {
  for (const int rotary_dim : {6, 4, 2}) {
    DecoderConfig config = small_config();
    config.rotations[0].params.rotary_dim = rotary_dim;
    const ref::Llama model = random_llama(config, true);
    const DecoderWeights weights = load(llama_file(model, {}));
    expect_rows(weights.embedding, model.embedding);
    expect_rows(weights.output, model.output);
    ASSERT_EQ(weights.layers.size(), model.layers.size());
    for (size_t i = 0; i < model.layers.size(); ++i) {
      for (int p = 0; p < llama::kNumSlices; ++p) {
        SCOPED_TRACE(llama::module_name(p));
        expect_rows(weights.layers[i].slices[size_t(p)].matrix, model.layers[i].projection[p]);
      }
    }
  }
}

/// Matrices are packed some megabytes at a time.
TEST(DecoderWeights, MatricesOfManyPieces) {
  DecoderConfig config = small_config();
  config.hidden_size = 1000;
  config.vocab_size = 2611;  // 10 MB
  const ref::Llama model = random_llama(config, false);
  const DecoderWeights weights = load(llama_file(model, {}));
  expect_rows(weights.embedding, model.embedding);
  EXPECT_EQ(weights.output.data, weights.embedding.data);
}

/// The values of a type that are nearest to these, and what that costs.
std::vector<double> rounded(WeightType type, const std::vector<double>& values,
                            Quantization& error) {
  std::vector<float> f32(values.begin(), values.end());
  std::vector<std::byte> stored(stored_bytes(type, std::ssize(f32)));
  quantize({}, stored, type, f32);
  dequantize(f32, type, stored);
  for (size_t i = 0; i < values.size(); ++i) {
    error.squared_difference += (f32[i] - values[i]) * (f32[i] - values[i]);
    error.squared_values += values[i] * values[i];
  }
  return {f32.begin(), f32.end()};
}

TEST(DecoderWeights, ArePackedInAnotherTypeWhereTheRowsAreWholeBlocks) {
  DecoderConfig config = small_config();
  config.hidden_size = 64;
  config.vocab_size = 10007;  // pieces of 1 MB
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kQ4_1, WeightType::kF16}) {
    const bool takes_all = type == WeightType::kF16;
    const ref::Llama model = random_llama(config, true);
    int64_t done_bytes = 0, total_bytes = 0;
    const DecoderWeights weights =
        load(llama_file(model, {}), {.weights = type, .on_load = [&](int64_t done, int64_t total) {
                                       EXPECT_GE(done, done_bytes);
                                       EXPECT_LE(done, total);
                                       done_bytes = done;
                                       total_bytes = total;
                                     }});
    EXPECT_EQ(done_bytes, total_bytes);
    EXPECT_GT(total_bytes, 2 * 64 * 10007 * 4);
    Quantization want;
    EXPECT_EQ(weights.embedding.type, type);
    expect_rows(weights.embedding, rounded(type, model.embedding, want));
    expect_rows(weights.output, rounded(type, model.output, want));
    for (size_t i = 0; i < model.layers.size(); ++i) {
      for (int p = 0; p < llama::kNumSlices; ++p) {
        SCOPED_TRACE(llama::module_name(p));
        const std::vector<double>& values = model.layers[i].projection[p];
        const Matrix& weight = weights.layers[i].slices[size_t(p)].matrix;
        const bool is_packed = takes_all || weight.in_features == 64;
        EXPECT_EQ(weight.type, is_packed ? type : WeightType::kF32);
        expect_rows(weight, is_packed ? rounded(type, values, want) : values);
      }
    }
    EXPECT_EQ(weights.quantization.num_kept, takes_all ? 0 : 4);  // o and down of both layers
    EXPECT_EQ(weights.quantization.from, std::set<WeightType>{WeightType::kF32});
    EXPECT_GT(want.relative_error(), 1e-5);
    EXPECT_NEAR(weights.quantization.relative_error() / want.relative_error(), 1.0, 1e-9);
  }
}

TEST(DecoderWeights, SayWhichTensorCannotBePacked) {
  DecoderConfig config = small_config();
  config.hidden_size = 64;
  ref::Llama model = random_llama(config, false);
  model.layers[1].projection[llama::kGate][70] = HUGE_VAL;
  testing::expect_invalid(
      {"m.gguf: tensor 'blk.1.ffn_gate.weight' cannot be packed to Q4_0: from row 0 on value 70 is "
       "inf, expected a finite number"},
      [&] { (void)load(llama_file(model, {}), {.weights = WeightType::kQ4_0}); });
}

/// A file with one more tensor before the others.
std::string with(const std::string& name, const std::vector<uint64_t>& dims, size_t count) {
  testing::GgufBuilder file;
  file.tensor(name, dims, 0, std::string(count * sizeof(float), '\0'));
  LlamaFileWriter(file, random_llama(small_config(), false)).write();
  return file.build();
}

TEST(DecoderWeights, QuotesLittleOfTheFile) {
  const std::string file = with(testing::hostile_text(size_t{10} << 20), {2}, 2);
  testing::expect_clean_message("a tensor without a place", [&] { (void)load(file); });
}

TEST(DecoderWeights, RefusesTensorsWithoutAPlaceAndOfOtherShapes) {
  testing::expect_unsupported(
      {"m.gguf: tensor 'blk.0.attn_sub_norm.weight' has no place in a llama model of 2 layers"},
      [&] { (void)load(with("blk.0.attn_sub_norm.weight", {12}, 12)); });
  testing::expect_unsupported({"m.gguf: tensor 'blk.2.ffn_norm.weight' has no place"},
                              [&] { (void)load(with("blk.2.ffn_norm.weight", {12}, 12)); });
  testing::expect_invalid(
      {"m.gguf: tensor 'rope_freqs.weight' is [1, 4] of rank 1, expected [1, 3] of rank 1"},
      [&] { (void)load(with("rope_freqs.weight", {4}, 4)); });
  testing::expect_invalid(
      {"m.gguf: tensor 'output.weight' is [16, 12] of rank 2, expected [17, 12]"}, [&] {
        (void)load(with("output.weight", {12, 16}, 12 * 16));
      });
}

}  // namespace
}  // namespace heddle::model
