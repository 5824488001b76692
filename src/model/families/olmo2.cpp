#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

void read_olmo2(const ModelFacts& facts, DecoderConfig& config) {
  config.norm_before = false;
  config.norm_after = true;
  config.qk_norm = QkNorm::kAllHeads;
  config.gate_activation = read_activation(facts.settings, {"hidden_act", ""}, "silu");
  config.rotations = {read_rotation(facts.settings, config)};
  read_attention_bias(facts, config);
  read_tied_head(facts, config, false);
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-05})";

}  // namespace

/// Norms follow attention and MLP, none precedes them; q and k are normalised over all heads.
const Family kOlmo2 = {.name = "olmo2",
                       .architecture = "Olmo2ForCausalLM",
                       .folder_defaults = kDefaults,
                       .read = read_olmo2};

}  // namespace heddle::model
