#include "shapes.h"

#include <fstream>
#include <iterator>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

struct Shape {
  const char *name, *config;
};

/// What speed depends on, of the config.json of each. SmolLM2's context is twice that of the model,
/// so that a prompt of 8,192 tokens has room. The tiny one is for what is no measurement.
constexpr Shape kShapes[] = {
    {"tiny", R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
      "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 320, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05})"},
    {"smollm2-135m", R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30,
      "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
      "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 16384,
      "rms_norm_eps": 1e-05, "rope_theta": 100000, "tie_word_embeddings": true})"},
    {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32,
      "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-05, "rope_theta": 500000, "rope_scaling": {"rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"qwen3-8b", R"({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36,
      "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000})"}};

}  // namespace

std::string config_of_shape(const std::string& name) {
  std::string names;
  for (const Shape& shape : kShapes) {
    if (name == shape.name) return shape.config;
    names += std::string(shape.name) + ", ";
  }
  std::ifstream file(name);
  HEDDLE_CHECK(file.good(), "--shape ", name, ": there are ", names, "and files config.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace heddle::app
