#include "synthetic_adapter.h"

#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "heddle/core/dtype.h"
#include "heddle/core/error.h"

namespace heddle::app {
namespace {

struct Layer {
  const char* name;
  int64_t in, out;
};

std::array<Layer, 7> layers_of(const ModelInfo& model) {
  const int64_t hidden = model.hidden_size, mlp = model.intermediate_size;
  const int64_t q = model.num_q_heads * model.head_dim, kv = model.num_kv_heads * model.head_dim;
  return {{{"self_attn.q_proj", hidden, q},
           {"self_attn.k_proj", hidden, kv},
           {"self_attn.v_proj", hidden, kv},
           {"self_attn.o_proj", q, hidden},
           {"mlp.gate_proj", hidden, mlp},
           {"mlp.up_proj", hidden, mlp},
           {"mlp.down_proj", mlp, hidden}}};
}

}  // namespace

void write_synthetic_adapter(const std::string& folder, const ModelInfo& model, int rank,
                             uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.01f);
  nlohmann::ordered_json header;
  const DType dtype =
      model.activations == name(DType::kBFloat16) ? DType::kBFloat16 : DType::kFloat16;
  std::vector<uint16_t> data;  // bits of it
  const auto add = [&](const std::string& tensor, int64_t rows, int64_t columns) {
    const size_t begin = data.size() * sizeof(uint16_t);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = normal(rng);
      data.push_back(dtype == DType::kBFloat16
                         ? std::bit_cast<uint16_t>(from_float<bfloat16>(value))
                         : std::bit_cast<uint16_t>(from_float<half>(value)));
    }
    header[tensor] = {{"dtype", dtype == DType::kBFloat16 ? "BF16" : "F16"},
                      {"shape", {rows, columns}},
                      {"data_offsets", {begin, data.size() * sizeof(uint16_t)}}};
  };
  for (int64_t i = 0; i < model.num_layers; ++i) {
    for (const Layer& layer : layers_of(model)) {
      const std::string prefix =
          "base_model.model.model.layers." + std::to_string(i) + "." + layer.name;
      add(prefix + ".lora_A.weight", rank, layer.in);
      add(prefix + ".lora_B.weight", layer.out, rank);
    }
  }
  std::filesystem::create_directories(folder);
  std::ofstream config(folder + "/adapter_config.json");
  config << nlohmann::json(
      {{"peft_type", "LORA"},
       {"r", rank},
       {"lora_alpha", rank},
       {"target_modules",
        {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}});
  std::ofstream file(folder + "/adapter_model.safetensors", std::ios::binary);
  const std::string text = header.dump();
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  file.write(reinterpret_cast<const char*>(data.data()),
             static_cast<std::streamsize>(data.size() * sizeof(uint16_t)));
  config.close();
  file.close();
  HEDDLE_CHECK(config.good() && file.good(), folder, ": cannot write the adapter");
}

int64_t synthetic_adapter_bytes(const ModelInfo& model, int rank) {
  int64_t weights = 0;
  for (const Layer& layer : layers_of(model)) weights += rank * (layer.in + layer.out);
  return weights * model.num_layers * int64_t{sizeof(half)};
}

}  // namespace heddle::app
