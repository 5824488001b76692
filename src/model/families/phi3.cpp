#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_phi3(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  config.gate_activation = read_activation(s, {"hidden_act", ""}, "silu");
  config.fused_qkv = config.fused_gate_up = true;
  s.mark_void({SettingName{"original_max_position_embeddings", ""}});  // of longrope alone
  Rotation rotation = read_rotation(s, config, {.scaling_is_longrope = true});
  if (s.is_gguf()) rotation.has_long_factors = facts.weights.contains("rope_factors_long.weight");
  config.rotations = {std::move(rotation)};
  const SettingName window{"sliding_window", "attention.sliding_window"};
  if (s.has(window) && s.integer(window) != 0) {
    read_windows(s, config, s.extent(window), [](const Settings&, int64_t) { return true; });
  }
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers":
    32, "num_attention_heads": 32, "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05})";

}  // namespace

/// A Llama whose q, k and v are one tensor, and gate and up another; long sequences turn by factors
/// of their own. Phi-3, Phi-3.5 and Phi-4.
const Family kPhi3 = {.name = "phi3",
                      .architecture = "Phi3ForCausalLM",
                      .folder_defaults = kDefaults,
                      .read = read_phi3};

}  // namespace heddle::model
