#include "model/families/families.h"
#include "model/source/rotation_settings.h"

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

}  // namespace

/// A Llama whose layers may see a window alone. GGUF calls it llama.
const Family kMistral = {.name = "mistral",
                         .architecture = "MistralForCausalLM",
                         .gguf_architecture = "",
                         .read = read_mistral};

}  // namespace heddle::model
