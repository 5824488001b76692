#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/engine/engine.h"

#include "engine/test/engine_cases.h"
#include "engine/test/test_device.h"
#include "model/test/llama_file.h"
#include "random.h"
#include "temp_folder.h"

namespace heddle::testing {

/// A type of the KV cache that changes no promise about bits.
inline std::string any_kv_type() { return random_int(0, 1) == 0 ? "fp8" : ""; }

/// A Llama of a test in a file of its own, and engines that run it.
class TinyModel {
 public:
  explicit TinyModel(const model::ref::Llama& model, const model::ByteTokenizer& tokenizer = {})
      : path_(folder_.write("tiny.gguf", model::llama_file(model, tokenizer))) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Engine engine(EngineOptions options = {}) const {
    options.model_path = path_;
    if (options.num_threads == 0) options.num_threads = 2;
    if (options.device.empty()) options.device = test_device();
    return Engine(options);
  }

 private:
  TempFolder folder_;
  std::string path_;
};

/// A shape in which no two extents are equal, with 256 tokens and more.
inline model::DecoderConfig tiny_config(int64_t vocab_size = 256) {
  return model::llama::rotating({.num_layers = 2,
                                 .hidden_size = 24,
                                 .intermediate_size = 40,
                                 .num_q_heads = 6,
                                 .num_kv_heads = 2,
                                 .head_dim = 8,
                                 .vocab_size = vocab_size,
                                 .context_length = 64});
}

/// A Llama whose layers add nothing and whose head gives token next[t] after token t, with a
/// probability of nearly 1.
inline model::ref::Llama scripted_llama(const std::vector<int32_t>& next) {
  const size_t vocab = next.size();
  model::ref::Llama m;
  m.config = tiny_config(static_cast<int64_t>(vocab));
  m.config.num_layers = 1;
  m.config.hidden_size = static_cast<int64_t>(vocab);
  m.embedding.assign(vocab * vocab, 0.0);
  m.output.assign(vocab * vocab, 0.0);
  for (size_t t = 0; t < vocab; ++t) {
    m.embedding[t * vocab + t] = 1.0;
    m.output[static_cast<size_t>(next[t]) * vocab + t] = 2.0;
  }
  m.output_norm.assign(vocab, 1.0);
  const model::BlockShape block = m.config.block();
  model::ref::Layer layer;
  layer.attention_norm = layer.mlp_norm = m.output_norm;
  for (int p = 0; p < model::llama::kNumSlices; ++p) {
    const auto [in, out] = block.slice(p).dims;
    layer.projection[p].assign(static_cast<size_t>(in * out), 0.0);
  }
  m.layers.push_back(std::move(layer));
  return m;
}

/// A request for an answer to these tokens.
inline Request request_of(std::vector<int32_t> tokens, int64_t max_tokens = 1,
                          const SamplingOptions& sampling = {}) {
  Request request;
  request.token_ids = std::move(tokens);
  request.max_tokens = max_tokens;
  request.sampling = sampling;
  return request;
}

/// Token ids of plain text, one a byte.
inline std::vector<int32_t> byte_tokens(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

inline std::vector<int32_t> random_tokens(int64_t count, int64_t vocab_size = 256) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(random_int(0, vocab_size - 1)));
  }
  return ids;
}

/// How far logits may be from those of a model in double, relative to the largest. On the CPU all
/// is f32. On a GPU a value is rounded to bf16 on its way: 10 times in attention (its input; the
/// matrices of q, k, v and o; q, k and v; probabilities and their sum), 7 times in an MLP, and for
/// embedding and head 3 times. Such errors add up like the root of their number, relative to the
/// values that they concern; the factor leaves room for maxima over many elements.
inline double logits_tolerance(int64_t num_layers = 2) {
  if (is_on_cpu()) return 2e-5;
  return 2 * kRounding<bfloat16> * std::sqrt(17.0 * static_cast<double>(num_layers) + 3.0);
}

/// The bound of log-probabilities, absolute: of logits, and of the logarithm of a sum that is as
/// near as they are.
inline double logprob_tolerance(const std::vector<double>& logits) {
  if (is_on_cpu()) return 1e-3;
  double largest = 0;
  for (const double x : logits) largest = std::max(largest, std::abs(x));
  return logits_tolerance() * largest;
}

/// Each token of a greedy answer is one of the largest logit of the model in double, and its
/// log-probability is that of the definition.
inline void expect_greedy(const Completion& answer, const model::ref::Llama& model,
                          std::vector<int32_t> tokens) {
  ASSERT_EQ(answer.logprobs.size(), answer.token_ids.size());
  for (size_t t = 0; t < answer.token_ids.size(); ++t) {
    const std::vector<double> logits = model::ref::logits(model, tokens);
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const double x : logits) sum += std::exp(x - largest);
    const double logit = logits[static_cast<size_t>(answer.token_ids[t])];
    const double tolerance = logprob_tolerance(logits);
    EXPECT_NEAR(logit, largest, tolerance) << "token " << t;
    EXPECT_NEAR(answer.logprobs[t], logit - largest - std::log(sum), tolerance) << "token " << t;
    tokens.push_back(answer.token_ids[t]);
  }
}

}  // namespace heddle::testing
