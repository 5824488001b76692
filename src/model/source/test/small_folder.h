#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/source/folder_model.h"
#include "safetensors_builder.h"
#include "temp_folder.h"

namespace heddle::testing {

/// A folder of a Qwen 2 of two layers, to be spoiled by a test before open().
class SmallFolder {
 public:
  using Shapes = std::map<std::string, std::vector<int64_t>>;

  SmallFolder() {
    for (const int layer : {0, 1}) {
      const std::string prefix = "model.layers." + std::to_string(layer) + '.';
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
        shapes[prefix + norm + ".weight"] = {8};
      }
      const auto product = [&](const std::string& name, int64_t out, int64_t in, bool has_bias) {
        shapes[prefix + name + ".weight"] = {out, in};
        if (has_bias) shapes[prefix + name + ".bias"] = {out};
      };
      product("self_attn.q_proj", 8, 8, true);
      product("self_attn.k_proj", 4, 8, true);
      product("self_attn.v_proj", 4, 8, true);
      product("self_attn.o_proj", 8, 8, false);
      product("mlp.gate_proj", 12, 8, false);
      product("mlp.up_proj", 12, 8, false);
      product("mlp.down_proj", 8, 12, false);
    }
    shapes["model.embed_tokens.weight"] = shapes["lm_head.weight"] = {10, 8};
    shapes["model.norm.weight"] = {8};
  }

  /// A safetensors file of the tensors, all zero but for the last values of some.
  static std::string weights_of(const Shapes& tensors,
                                const std::map<std::string, float>& last_values = {}) {
    SafetensorsBuilder builder;
    for (const auto& [name, shape] : tensors) {
      size_t size = 4;
      for (const int64_t extent : shape) size *= static_cast<size_t>(extent);
      std::string bytes(size, '\0');
      if (const auto last = last_values.find(name); last != last_values.end()) {
        std::memcpy(bytes.data() + size - sizeof(float), &last->second, sizeof(float));
      }
      builder.tensor(name, "F32", shape, bytes);
    }
    return builder.build();
  }

  [[nodiscard]] std::string path() const { return folder.path().string(); }

  /// config.json and the tensors in one file.
  void write_all() const {
    folder.write("config.json", config.dump());
    folder.write("model.safetensors", weights_of(shapes));
  }

  TempFolder folder;
  nlohmann::json config = {{"architectures", {"Qwen2ForCausalLM"}},
                           {"hidden_size", 8},
                           {"intermediate_size", 12},
                           {"max_position_embeddings", 32},
                           {"model_type", "qwen2"},
                           {"num_attention_heads", 2},
                           {"num_hidden_layers", 2},
                           {"num_key_value_heads", 1},
                           {"vocab_size", 10}};
  Shapes shapes;
};

}  // namespace heddle::testing
