#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/test/llama_model_ref.h"
#include "random.h"
#include "safetensors_builder.h"
#include "temp_folder.h"

namespace heddle::testing {

/// A random adapter of any kind in a folder of its own, as PEFT writes it; `merged` is the model
/// with it.
class KindAdapter {
 public:
  enum class With { kNothing, kMagnitude, kBias };

  explicit KindAdapter(const model::ref::Llama& base) : merged(base) {
    if (base.output.empty()) merged.output = base.embedding;  // what follows makes them differ
  }

  KindAdapter& projections(const std::vector<int>& targets, With with) {
    const model::BlockShape block = merged.config.block();
    for (int64_t layer = 0; layer < merged.config.num_layers; ++layer) {
      for (const int p : targets) {
        const std::string place =
            "model.layers." + std::to_string(layer) + "." + model::llama::module_name(p) + ".";
        auto& of_layer = merged.layers[static_cast<size_t>(layer)];
        linear(place, of_layer.projection[p], of_layer.bias[p], block.slice(p).dims.in, with);
      }
    }
    for (const int p : targets) targets_.push_back(model::llama::target_name(p));
    return *this;
  }
  KindAdapter& head(With with) {
    linear("lm_head.", merged.output, merged.output_bias, merged.config.hidden_size, with);
    targets_.emplace_back("lm_head");
    return *this;
  }
  /// Columns of the table are its outputs.
  KindAdapter& embedding(With with) {
    const int64_t num_tokens = merged.config.vocab_size, width = merged.config.hidden_size;
    const std::string place = "model.embed_tokens.";
    const std::vector<double> a = values(place + "lora_embedding_A", {kRank, num_tokens}, 1.0f);
    const std::vector<double> b = values(place + "lora_embedding_B", {width, kRank}, 0.5f);
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        for (int64_t r = 0; r < kRank; ++r) {
          merged.embedding[size_t(t * width + i)] +=
              kScale * a[size_t(r * num_tokens + t)] * b[size_t(i * kRank + r)];
        }
      }
    }
    if (with == With::kMagnitude) {
      normalize(place, merged.embedding, width, 1, width, num_tokens);
    }
    targets_.emplace_back("embed_tokens");
    return *this;
  }
  /// Rows of their own for tokens, in any order.
  KindAdapter& token_rows(bool of_head, const std::vector<int32_t>& ids) {
    const int64_t width = merged.config.hidden_size;
    const std::string module = of_head ? "lm_head" : "embed_tokens";
    const auto rows = values((of_head ? "lm_head" : "model.embed_tokens") +
                                 std::string(".token_adapter.trainable_tokens_delta"),
                             {std::ssize(ids), width}, 0.7f);
    std::vector<double>& table = of_head ? merged.output : merged.embedding;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(ids[i / size_t(width)]);
      table[row * size_t(width) + i % size_t(width)] = rows[i];
    }
    config_["trainable_token_indices"][module] = ids;
    return *this;
  }
  /// Where the head is tied to the embedding, these rows of its are, too.
  KindAdapter& tie_rows(const std::vector<int32_t>& ids) {
    const int64_t width = merged.config.hidden_size;
    for (const int32_t id : ids) {
      std::copy_n(merged.embedding.begin() + id * width, width, merged.output.begin() + id * width);
    }
    return *this;
  }
  /// A weight of its own.
  KindAdapter& weight(bool of_head) {
    const std::vector<int64_t> shape{merged.config.vocab_size, merged.config.hidden_size};
    (of_head ? merged.output : merged.embedding) =
        values(of_head ? "lm_head.weight" : "model.embed_tokens.weight", shape, 0.7f);
    config_["modules_to_save"].push_back(of_head ? "lm_head" : "embed_tokens");
    return *this;
  }
  /// A score head of its own; returns its weight [num_labels, hidden_size].
  std::vector<double> score(int64_t num_labels) {
    config_["modules_to_save"] = {"classifier", "score"};  // both, as PEFT writes it
    return values("score.weight", {num_labels, merged.config.hidden_size}, 0.7f);
  }

  /// The folder with all of it.
  std::string write() {
    config_["peft_type"] = "LORA";
    config_["r"] = kRank;
    config_["lora_alpha"] = kScale * kRank;
    config_["target_modules"] = targets_;
    folder_.write("adapter_model.safetensors", tensors_.build());
    folder_.write("adapter_config.json", config_.dump());
    return folder_.path().string();
  }

  model::ref::Llama merged;

 private:
  static constexpr int64_t kRank = 3;
  static constexpr double kScale = 0.5;

  std::vector<double> values(const std::string& tensor, const std::vector<int64_t>& shape,
                             float scale, float mean = 0.0f) {
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    auto drawn = random_normal<float>(static_cast<size_t>(size), scale);
    for (float& value : drawn) value += mean;
    tensors_.tensor("base_model.model." + tensor, "F32", shape,
                    {reinterpret_cast<const char*>(drawn.data()), drawn.size() * sizeof(float)});
    return to_double(drawn);
  }

  void linear(const std::string& place, std::vector<double>& w, std::vector<double>& bias,
              int64_t in, With with) {
    const int64_t out = std::ssize(w) / in;
    const std::vector<double> a = values(place + "lora_A.weight", {kRank, in}, 0.3f);
    const std::vector<double> b = values(place + "lora_B.weight", {out, kRank}, 0.3f);
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t k = 0; k < in; ++k) {
        for (int64_t r = 0; r < kRank; ++r) {
          w[size_t(o * in + k)] += kScale * b[size_t(o * kRank + r)] * a[size_t(r * in + k)];
        }
      }
    }
    if (with == With::kMagnitude) normalize(place, w, out, in, 1, in);
    if (with != With::kBias) return;
    config_["lora_bias"] = true;
    const std::vector<double> own = values(place + "lora_B.bias", {out}, 0.5f);
    bias.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i) bias[i] += kScale * own[i];
  }

  /// Gives each output, whose `count` weights are `step` apart, a random length: DoRA.
  void normalize(const std::string& place, std::vector<double>& w, int64_t num_outputs,
                 int64_t output_step, int64_t step, int64_t count) {
    config_["use_dora"] = true;
    const std::vector<double> lengths =
        values(place + "lora_magnitude_vector", {num_outputs}, 0.4f, 1.5f);
    for (int64_t o = 0; o < num_outputs; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < count; ++k) {
        sum += std::pow(w[size_t(o * output_step + k * step)], 2);
      }
      for (int64_t k = 0; k < count; ++k) {
        w[size_t(o * output_step + k * step)] *= lengths[size_t(o)] / std::sqrt(sum);
      }
    }
  }

  TempFolder folder_;
  SafetensorsBuilder tensors_;
  std::vector<std::string> targets_;
  nlohmann::json config_;
};

}  // namespace heddle::testing
