#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gguf_builder.h"
#include "model/adapters/projection.h"
#include "model/llama_config.h"
#include "model/test/adapter_cases.h"
#include "random.h"
#include "temp_folder.h"

namespace heddle::testing {

inline constexpr int64_t kTinyContext = 64;

/// The settings of a Llama of two small layers.
inline model::LlamaConfig tiny_config(int64_t hidden_size, int64_t vocab_size) {
  model::LlamaConfig config;
  config.num_layers = 2;
  config.hidden_size = hidden_size;
  config.intermediate_size = 24;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 4;
  config.vocab_size = vocab_size;
  config.context_length = kTinyContext;
  return config;
}

/// Tokens by id, spelled as a GGUF file has them, and those that end an answer.
struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::map<std::string, uint32_t> ends{};  // "eos" and "eot"
};

/// A model file. values(name, in, out) gives the weights [out, in] of a tensor, [in] of a norm.
inline std::string tiny_model_file(
    const model::LlamaConfig& config, const TinyVocabulary& vocabulary,
    const std::function<std::vector<float>(const std::string&, int64_t, int64_t)>& values) {
  GgufBuilder file;
  file.value("general.architecture", "llama")
      .value("llama.block_count", uint32_t(config.num_layers))
      .value("llama.embedding_length", uint32_t(config.hidden_size))
      .value("llama.feed_forward_length", uint32_t(config.intermediate_size))
      .value("llama.attention.head_count", uint32_t(config.num_q_heads))
      .value("llama.attention.head_count_kv", uint32_t(config.num_kv_heads))
      .value("llama.attention.key_length", uint32_t(config.head_dim))
      .value("llama.attention.value_length", uint32_t(config.head_dim))
      .value("llama.rope.dimension_count", uint32_t(config.head_dim))
      .value("llama.context_length", uint32_t(config.context_length))
      .value("llama.attention.layer_norm_rms_epsilon", 0.0f)
      .value("tokenizer.ggml.model", "gpt2")
      .array("tokenizer.ggml.tokens", vocabulary.tokens)
      .array("tokenizer.ggml.merges", std::vector<std::string>());
  for (const auto& [name, id] : vocabulary.ends) {
    file.value("tokenizer.ggml." + name + "_token_id", id);
  }
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    const std::vector<float> weights = values(name, in, out);
    std::vector<uint64_t> dims{static_cast<uint64_t>(in)};
    if (out > 1) dims.push_back(static_cast<uint64_t>(out));
    file.tensor(name + ".weight", dims, 0,
                {reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)});
  };
  const model::ModelDims dims = config.dims();
  add("token_embd", config.hidden_size, config.vocab_size);
  add("output", config.hidden_size, config.vocab_size);
  add("output_norm", config.hidden_size, 1);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
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

/// A random model, its answers about as likely to be any token, and random adapters for it.
class RandomModel {
 public:
  static constexpr int64_t kVocabSize = 26;

  RandomModel() {
    merged_.config = tiny_config(16, kVocabSize);
    merged_.layers.resize(2);
    const model::ModelDims dims = merged_.config.dims();
    for (model::ref::Layer& layer : merged_.layers) {
      for (int p = 0; p < model::kNumProjections; ++p) {
        layer.projection[p].resize(
            static_cast<size_t>(dims.projections[p].in * dims.projections[p].out));
      }
    }
    TinyVocabulary vocabulary;
    for (char c = 'a'; c <= 'z'; ++c) vocabulary.tokens.emplace_back(1, c);
    text_ = tiny_model_file(merged_.config, vocabulary, [](const auto&, int64_t in, int64_t out) {
      return random_normal<float>(static_cast<size_t>(in * out), 0.6f);
    });
  }

  /// The bytes of the model's file.
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Writes the file and returns its path.
  [[nodiscard]] std::string path() const { return folder_.write("tiny.gguf", text_); }
  /// An adapter of all values of one dtype; `bytes` holds its weights.
  [[nodiscard]] model::PeftAdapter adapter(int64_t rank, std::string& bytes) {
    return model::random_adapter<half>(
        "F16", rank, {model::Projection::kV, model::Projection::kDown}, bytes, merged_);
  }
  /// Writes such an adapter as a folder and returns its path.
  [[nodiscard]] std::string adapter_folder(const std::string& name, int64_t rank) {
    std::string bytes;
    (void)adapter(rank, bytes);
    std::filesystem::create_directory(folder_.path() / name);
    const nlohmann::json config = {{"peft_type", "LORA"},
                                   {"r", rank},
                                   {"lora_alpha", 3.0},
                                   {"target_modules", {"v_proj", "down_proj"}}};
    folder_.write(name + "/adapter_config.json", config.dump());
    folder_.write(name + "/adapter_model.safetensors", bytes);
    return (folder_.path() / name).string();
  }

 private:
  TempFolder folder_;
  model::ref::Llama merged_;  // its layers are only written to, by random_adapter
  std::string text_;
};

/// A model that says what it is told: the logits after a token depend on that token alone.
class ScriptedModel {
 public:
  /// logits[t]: what follows token t, by id; ids that are not there have -30.
  using Logits = std::vector<std::map<int, float>>;

  ScriptedModel(const TinyVocabulary& vocabulary, const Logits& logits) {
    const auto vocab = static_cast<int64_t>(vocabulary.tokens.size());
    const int64_t hidden = vocab;
    const model::LlamaConfig config = tiny_config(hidden, vocab);
    // One element of the residual for each token; the norm makes it sqrt(hidden).
    const auto values = [&](const std::string& name, int64_t in, int64_t out) {
      std::vector<float> weights(static_cast<size_t>(in * out), 0.0f);
      const auto at = [&](size_t row, size_t column) -> float& {
        return weights[row * static_cast<size_t>(in) + column];
      };
      if (name.ends_with("norm")) weights.assign(weights.size(), 1.0f);
      for (size_t t = 0; t < logits.size(); ++t) {
        if (name == "token_embd") at(t, t) = 1.0f;
        if (name != "output") continue;
        for (size_t next = 0; next < logits.size(); ++next) {
          const auto found = logits[t].find(static_cast<int>(next));
          const float logit = found == logits[t].end() ? -30.0f : found->second;
          at(next, t) = logit / std::sqrt(static_cast<float>(hidden));
        }
      }
      return weights;
    };
    path_ = folder_.write("scripted.gguf", tiny_model_file(config, vocabulary, values));
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TempFolder folder_;
  std::string path_;
};

/// A script in which each token is followed by the next one of the list.
inline ScriptedModel::Logits one_after_another(size_t num_tokens) {
  ScriptedModel::Logits logits(num_tokens);
  for (size_t t = 0; t < num_tokens; ++t) {
    logits[t][static_cast<int>((t + 1) % num_tokens)] = 0.0f;
  }
  return logits;
}

}  // namespace heddle::testing
