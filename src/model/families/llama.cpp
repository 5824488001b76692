#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_llama(const ModelFacts& facts, DecoderConfig& config) {
  config.interleaved_qk = facts.settings.is_gguf();
  config.gate_activation = read_activation(facts.settings, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(facts.settings, config)};
  read_attention_bias(facts, config);
  read_mlp_bias(facts, config);
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048})";

}  // namespace

/// Llama 1 to 3.x, and what has its shape: Mistral in GGUF, SmolLM 1 and 2, Vicuna.
const Family kLlama = {.name = "llama",
                       .architecture = "LlamaForCausalLM",
                       .folder_defaults = kDefaults,
                       .read = read_llama};

}  // namespace heddle::model
