#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_granite(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  const auto scale = [&](const SettingName& name) {
    return static_cast<float>(s.positive_or(name, 1.0));
  };
  config.interleaved_qk = s.is_gguf();
  config.gate_activation = read_activation(s, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(s, config)};
  config.embedding_scale = scale({"embedding_multiplier", "embedding_scale"});
  config.residual_scale = scale({"residual_multiplier", "residual_scale"});
  config.attention_scale = scale({"attention_multiplier", "attention.scale"});
  config.logits_scale = 1.0f / scale({"logits_scaling", "logit_scale"});
  read_attention_bias(facts, config);
  read_mlp_bias(facts, config);
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048})";

}  // namespace

/// A Llama with scales of its embedding, residuals, scores and logits.
const Family kGranite = {.name = "granite",
                         .architecture = "GraniteForCausalLM",
                         .folder_defaults = kDefaults,
                         .read = read_granite};

}  // namespace heddle::model
