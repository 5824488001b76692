#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_gemma3(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  constexpr int64_t kLayersOf27B = 62;
  read_gemma(facts, config, kLayersOf27B);
  config.qk_norm = QkNorm::kEachHead;
  constexpr int kSliding = 1;  // in config.rotations
  config.rotations = {read_rotation(s, config, {.theta = 1e6, .layer_type = "full_attention"}),
                      read_rotation(s, config,
                                    {.theta = 1e4,
                                     .layer_type = "sliding_attention",
                                     .theta_name = {"rope_local_base_freq", "rope.freq_base_swa"},
                                     .may_scale = false})};
  const int64_t window = s.extent_or({"sliding_window", "attention.sliding_window"}, 4096);
  read_windows(s, config, window, [](const Settings& settings, int64_t layer) {
    return (layer + 1) % settings.extent_or({"sliding_window_pattern", ""}, 6) != 0;
  });
  for (LayerTraits& layer : config.layers) layer.rotation = layer.window < 0 ? 0 : kSliding;
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim":
    256, "max_position_embeddings": 131072})";

}  // namespace

/// Five of six layers see a window and turn by a base of their own; q and k of each head are
/// normalised.
const Family kGemma3 = {.name = "gemma3",
                        .architecture = "Gemma3ForCausalLM",
                        .model_type = "gemma3_text",
                        .folder_defaults = kDefaults,
                        .read = read_gemma3};

}  // namespace heddle::model
