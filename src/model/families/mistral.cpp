#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_mistral(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  config.gate_activation = read_activation(s, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(s, config)};
  const SettingName window{"sliding_window", ""};
  if (s.has(window)) {
    read_windows(s, config, s.extent(window), [](const Settings&, int64_t) { return true; });
  }
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "sliding_window": 4096})";

}  // namespace

/// A Llama whose layers may see a window alone. GGUF calls it llama.
const Family kMistral = {.name = "mistral",
                         .architecture = "MistralForCausalLM",
                         .gguf_architecture = "",
                         .folder_defaults = kDefaults,
                         .read = read_mistral};

}  // namespace heddle::model
