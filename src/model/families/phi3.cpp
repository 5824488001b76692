#include "model/families/families.h"
#include "model/source/rotation_settings.h"

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

}  // namespace

/// A Llama whose q, k and v are one tensor, and gate and up another; long sequences turn by factors
/// of their own. Phi-3, Phi-3.5 and Phi-4.
const Family kPhi3 = {.name = "phi3",
                      .architecture = "Phi3ForCausalLM",
                      .gguf_architecture = "phi3",
                      .read = read_phi3};

}  // namespace heddle::model
