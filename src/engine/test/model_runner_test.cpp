#include "engine/model_runner.h"

#include <gtest/gtest.h>

#include "gguf_builder.h"
#include "model/test/adapter_cases.h"
#include "random.h"
#include "second_cpu.h"

namespace heddle {
namespace {

/// A random Llama of two layers as a file in memory, and an adapter for it.
class TinyFiles {
 public:
  TinyFiles() {
    merged_.config.num_layers = 2;
    merged_.config.hidden_size = 16;
    merged_.config.intermediate_size = 24;
    merged_.config.num_q_heads = 4;
    merged_.config.num_kv_heads = 2;
    merged_.config.head_dim = 4;
    merged_.config.vocab_size = 19;
    model_text_ = model_file();
    const ModelDims dims = merged_.config.dims();
    merged_.layers.resize(2);
    for (model::ref::Layer& layer : merged_.layers) {
      for (int p = 0; p < model::kNumProjections; ++p) {
        layer.projection[p].resize(
            static_cast<size_t>(dims.projections[p].in * dims.projections[p].out));
      }
    }
  }

  [[nodiscard]] files::GgufFile model() const {
    return {std::as_bytes(std::span(model_text_)), "tiny.gguf"};
  }
  [[nodiscard]] model::PeftAdapter adapter() {
    return model::random_adapter<half>("F16", 3, {model::Projection::kV, model::Projection::kDown},
                                       adapter_text_, merged_);
  }

 private:
  using ModelDims = model::ModelDims;

  [[nodiscard]] std::string model_file() const {
    const model::LlamaConfig& config = merged_.config;
    testing::GgufBuilder file;
    file.value("general.architecture", "llama")
        .value("llama.block_count", uint32_t(config.num_layers))
        .value("llama.embedding_length", uint32_t(config.hidden_size))
        .value("llama.feed_forward_length", uint32_t(config.intermediate_size))
        .value("llama.attention.head_count", uint32_t(config.num_q_heads))
        .value("llama.attention.head_count_kv", uint32_t(config.num_kv_heads))
        .value("llama.context_length", uint32_t{64})
        .value("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    const auto add = [&](const std::string& name, int64_t in, int64_t out) {
      const auto values = testing::random_normal<float>(static_cast<size_t>(in * out), 0.4f);
      std::vector<uint64_t> dims{static_cast<uint64_t>(in)};
      if (out > 1) dims.push_back(static_cast<uint64_t>(out));
      file.tensor(name + ".weight", dims, 0,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    };
    const ModelDims dims = config.dims();
    add("token_embd", config.hidden_size, config.vocab_size);
    add("output_norm", config.hidden_size, 1);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      add(prefix + "attn_norm", config.hidden_size, 1);
      add(prefix + "ffn_norm", config.hidden_size, 1);
      constexpr const char* kNames[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
      for (int p = 0; p < model::kNumProjections; ++p) {
        add(prefix + kNames[p], dims.projections[p].in, dims.projections[p].out);
      }
    }
    return file.build();
  }

  model::ref::Llama merged_;
  std::string model_text_, adapter_text_;
};

/// Greedy and drawn answers of three rows, the third one with the adapter, on one device.
std::vector<std::vector<int32_t>> answers_on(Device device, const files::GgufFile& file,
                                             const model::PeftAdapter& adapter,
                                             std::vector<float>& first_logits) {
  const ModelRunner::Limits limits{
      .max_batch = 3, .num_threads = 2, .page_size = 4, .prefill_chunk = 8, .max_context = 32};
  ModelRunner runner(device, file, model::read_llama_config(file), limits);
  std::vector<Sequence> rows(3);
  for (int32_t i = 0; i < 3; ++i) {
    Sequence& row = rows[static_cast<size_t>(i)];
    for (int32_t t = 0; t <= 2 * i; ++t) row.tokens.push_back((5 * i + 7 * t) % 19);
    row.sampling = {.temperature = i == 1 ? 0.9f : 0.0f, .top_k = 9, .top_p = 0.9f, .seed = 11};
  }
  rows[2].slot = runner.add_adapter(adapter);
  const std::vector<Sequence*> all{&rows[0], &rows[1], &rows[2]};
  for (int step = 0; step < 10; ++step) {
    std::vector<int64_t> num_tokens;
    for (const Sequence* row : all) num_tokens.push_back(std::ssize(row->tokens) - row->num_cached);
    runner.run(all, num_tokens);
    if (step == 0) first_logits = runner.copy_logits();
    std::vector<int32_t> tokens(3);
    std::vector<float> logprobs(3);
    runner.sample(all, tokens, logprobs);
    for (size_t i = 0; i < 3; ++i) {
      rows[i].tokens.push_back(tokens[i]);
      rows[i].completion.token_ids.push_back(tokens[i]);
      EXPECT_LE(logprobs[i], 0.0f);
    }
  }
  std::vector<std::vector<int32_t>> answers;
  for (const Sequence& row : rows) answers.push_back(row.completion.token_ids);
  return answers;
}

/// The ops refuse tensors of another device: a buffer that did not come from the context's device
/// throws here.
TEST(ModelRunner, TakesAllMemoryFromTheDeviceOfItsContext) {
  TinyFiles files;
  const files::GgufFile file = files.model();
  const model::PeftAdapter adapter = files.adapter();
  std::vector<float> logits, second_logits;
  const auto answers = answers_on({}, file, adapter, logits);
  EXPECT_EQ(answers_on(testing::kSecondCpu, file, adapter, second_logits), answers);
  EXPECT_EQ(logits.size(), 3u * 19u);
  EXPECT_EQ(second_logits, logits);
}

}  // namespace
}  // namespace heddle
