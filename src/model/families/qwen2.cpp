#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {

void read_qwen_windows(const Settings& settings, DecoderConfig& config) {
  const SettingName window{"sliding_window", ""};
  settings.mark_void({window, {"max_window_layers", ""}, {"layer_types", ""}});
  if (!settings.flag_or({"use_sliding_window", ""}, false) || !settings.has(window)) return;
  read_windows(settings, config, settings.extent(window), [](const Settings& s, int64_t layer) {
    const SettingName first{"max_window_layers", ""};
    return layer >= (s.has(first) ? s.integer(first) : 28);
  });
}

namespace {

void read_qwen2(const ModelFacts& facts, DecoderConfig& config) {
  config.gate_activation = read_activation(facts.settings, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(facts.settings, config)};
  config.qkv_bias = true;
  read_qwen_windows(facts.settings, config);
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "max_position_embeddings": 32768, "sliding_window": 4096})";

}  // namespace

/// A Llama with biases of q, k and v. Qwen2 and Qwen2.5.
const Family kQwen2 = {.name = "qwen2",
                       .architecture = "Qwen2ForCausalLM",
                       .folder_defaults = kDefaults,
                       .read = read_qwen2};

}  // namespace heddle::model
