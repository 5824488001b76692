#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/test/adapter_cases.h"
#include "model/test/llama_file.h"
#include "temp_folder.h"

namespace heddle::testing {

inline constexpr int64_t kTinyContext = 64;

/// The settings of a Llama of two small layers.
inline model::DecoderConfig tiny_config(int64_t hidden_size, int64_t vocab_size) {
  model::DecoderConfig config;
  config.num_layers = 2;
  config.hidden_size = hidden_size;
  config.intermediate_size = 24;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = config.rotations[0].params.rotary_dim = 4;
  config.vocab_size = vocab_size;
  config.context_length = kTinyContext;
  return config;
}

/// Tokens by id, spelled as a GGUF file has them, and those that end an answer.
struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::map<std::string, uint32_t> ends{};  // "eos" and "eot"
  std::vector<std::string> merges{};
};

/// The file of a model with these tokens.
inline std::string model_file(const model::ref::Llama& model, const TinyVocabulary& vocabulary) {
  GgufBuilder file;
  file.value("tokenizer.ggml.model", "gpt2")
      .array("tokenizer.ggml.tokens", vocabulary.tokens)
      .array("tokenizer.ggml.merges", vocabulary.merges);
  for (const auto& [name, id] : vocabulary.ends) {
    file.value("tokenizer.ggml." + name + "_token_id", id);
  }
  model::LlamaFileWriter(file, model).write();
  return file.build();
}

/// A random model, its answers about as likely to be any token, and random adapters for it.
class RandomModel {
 public:
  static constexpr int64_t kVocabSize = 26;

  RandomModel() {
    merged_ = model::random_llama(tiny_config(16, kVocabSize), true);
    TinyVocabulary vocabulary;
    for (char c = 'a'; c <= 'z'; ++c) vocabulary.tokens.emplace_back(1, c);
    text_ = model_file(merged_, vocabulary);
  }

  /// The bytes of the model's file.
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Writes the file and returns its path.
  [[nodiscard]] std::string path() const { return folder_.write("tiny.gguf", text_); }
  /// An adapter of all values of one dtype; `bytes` holds its weights.
  [[nodiscard]] model::PeftAdapter adapter(int64_t rank, std::string& bytes) {
    return model::random_adapter<half>("F16", rank, {model::llama::kV, model::llama::kDown}, bytes,
                                       merged_);
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
    const size_t vocab = vocabulary.tokens.size();
    const auto hidden = static_cast<int64_t>(vocab);
    // One element of the residual for each token; the norm makes it sqrt(hidden). The layers add
    // nothing.
    model::ref::Llama m = model::random_llama(tiny_config(hidden, hidden), true);
    m.config.rms_epsilon = 0.0f;
    m.embedding.assign(vocab * vocab, 0.0);
    m.output.assign(vocab * vocab, 0.0);
    m.output_norm.assign(vocab, 1.0);
    for (model::ref::Layer& layer : m.layers) {
      for (std::vector<double>& weights : layer.projection) weights.assign(weights.size(), 0.0);
    }
    for (size_t t = 0; t < logits.size(); ++t) {
      m.embedding[t * vocab + t] = 1.0;
      for (size_t next = 0; next < logits.size(); ++next) {
        const auto found = logits[t].find(static_cast<int>(next));
        const double logit = found == logits[t].end() ? -30.0 : found->second;
        m.output[next * vocab + t] = logit / std::sqrt(static_cast<double>(hidden));
      }
    }
    path_ = folder_.write("scripted.gguf", model_file(m, vocabulary));
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
