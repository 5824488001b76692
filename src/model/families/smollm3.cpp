#include "heddle/core/error.h"

#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

/// By layer, whether its q and k are rotated.
std::vector<bool> read_rotated_layers(const Settings& s, int64_t num_layers) {
  const SettingName given{"no_rope_layers", ""};  // 1: with rotation, in spite of its name
  const SettingName every{"no_rope_layer_interval", ""};
  std::vector<bool> rotated;
  if (s.has(given)) {
    s.mark_void({every});
    for (const double flag : s.numbers(given)) rotated.push_back(flag != 0);
    HEDDLE_CHECK(static_cast<int64_t>(rotated.size()) >= num_layers, s.where(given), " has ",
                 rotated.size(), " entries, expected one for each of ", num_layers, " layers");
    return rotated;
  }
  const int64_t interval = s.extent_or(every, 4);
  for (int64_t i = 0; i < num_layers; ++i) rotated.push_back((i + 1) % interval != 0);
  return rotated;
}

void read_smollm3(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  config.interleaved_qk = s.is_gguf();
  config.gate_activation = read_activation(s, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(s, config, {.theta = 2e6})};
  const std::vector<bool> rotated = read_rotated_layers(s, config.num_layers);
  config.layers.resize(static_cast<size_t>(config.num_layers));
  const SettingName window{"sliding_window", ""};
  s.mark_void({window, {"layer_types", ""}});
  if (s.flag_or({"use_sliding_window", ""}, false) && s.has(window)) {
    read_windows(s, config, s.extent(window), [](const Settings&, int64_t) { return false; });
    if (!s.has({"layer_types", ""})) {
      for (size_t i = 0; i < config.layers.size(); ++i) {
        if (!rotated[i]) config.layers[i].window = s.extent(window);
      }
    }
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!rotated[i]) config.layers[i].rotation = LayerTraits::kNoRotation;
  }
  read_attention_bias(facts, config);
  read_mlp_bias(facts, config);
  read_tied_head(facts, config, true);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
    "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
    "max_position_embeddings": 32768})";

}  // namespace

/// A Llama in which some layers are not rotated.
const Family kSmolLm3 = {.name = "smollm3",
                         .architecture = "SmolLM3ForCausalLM",
                         .folder_defaults = kDefaults,
                         .read = read_smollm3};

}  // namespace heddle::model
