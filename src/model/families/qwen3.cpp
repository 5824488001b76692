#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_qwen3(const ModelFacts& facts, DecoderConfig& config) {
  config.gate_activation = read_activation(facts.settings, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(facts.settings, config)};
  config.qk_norm = QkNorm::kEachHead;
  read_attention_bias(facts, config);
  read_qwen_windows(facts.settings, config);
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim":
    128, "max_position_embeddings": 32768, "sliding_window": 4096})";

}  // namespace

/// A Llama that normalises q and k of each head.
const Family kQwen3 = {.name = "qwen3",
                       .architecture = "Qwen3ForCausalLM",
                       .folder_defaults = kDefaults,
                       .read = read_qwen3};

}  // namespace heddle::model
