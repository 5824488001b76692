#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/decoder/decoder_config.h"
#include "model/source/settings.h"
#include "model/source/weight_source.h"

namespace heddle::model {

/// What a family's reader has at hand.
struct ModelFacts {
  const Settings& settings;
  const WeightSource& weights;
};

/// A family of models: what its files call it, and how its configuration becomes traits. To add one
/// see docs/design/model_families.md.
struct Family {
  std::string_view name;               // "qwen2"
  std::string_view architecture;       // of config.json: "Qwen2ForCausalLM"
  std::string_view gguf_architecture;  // general.architecture of GGUF; empty: none of its own
  /// Sets what differs from a Llama; `config` has the extents by then.
  void (*read)(const ModelFacts& facts, DecoderConfig& config);
};

/// All families, by name.
[[nodiscard]] std::span<const Family* const> families();

/// Reads and checks the configuration of a model. Errors name file, key and both values.
[[nodiscard]] DecoderConfig read_gguf_config(const GgufSettings& settings,
                                             const WeightSource& weights);
/// The same of a folder's config.json.
[[nodiscard]] DecoderConfig read_folder_config(const JsonSettings& settings,
                                               const WeightSource& weights);

// For the families' readers.

/// Biases, by key in folders and by the tensors that are there in GGUF.
void read_attention_bias(const ModelFacts& facts, DecoderConfig& config);
void read_mlp_bias(const ModelFacts& facts, DecoderConfig& config);
/// Whether the embedding is the head; `by_default` where a folder does not say it.
void read_tied_head(const ModelFacts& facts, DecoderConfig& config, bool by_default);
/// The function of the gate by the name of transformers under `name`; refuses unknown ones.
[[nodiscard]] GateActivation read_activation(const Settings& settings, const SettingName& name,
                                             std::string_view by_default);
/// Sets the window of the layers that slide, by `layer_types` where the settings have it.
void read_windows(const Settings& settings, DecoderConfig& config, int64_t window,
                  bool (*slides_by_default)(const Settings& settings, int64_t layer));

}  // namespace heddle::model
