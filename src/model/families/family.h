#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"
#include "model/config/decoder_config.h"
#include "model/config/settings.h"
#include "model/config/weight_source.h"

namespace heddle::model {

/// Input of a family's reader.
struct ModelFacts {
  const Settings& settings;
  const WeightSource& weights;
  /// Where a folder says of the whole model whether the embedding is the head; null: the settings.
  const Settings* tying = nullptr;
};

/// A family of models: what its files call it, and how its configuration becomes traits. To add one
/// see docs/design/model_families.md.
struct Family {
  std::string_view name;                      // "qwen2"
  std::string_view architecture;              // of config.json: "Qwen2ForCausalLM"
  std::string_view gguf_architecture = name;  // general.architecture; empty: none of its own
  std::string_view model_type = name;         // of config.json
  /// What a config.json may leave out: a JSON object of what transformers' class takes for it.
  std::string_view folder_defaults;
  /// Sets what differs from a Llama; `config` has the extents by then.
  void (*read)(const ModelFacts& facts, DecoderConfig& config);
};

/// A model that takes more than text, and whose text half is of a family.
struct Wrapper {
  std::string_view architecture, model_type;  // of config.json
  std::string_view text_type;                 // the model_type of its text_config
  const Family* family;
  std::string_view folder_defaults;  // of its text half
  bool tied_by_default;              // whether the embedding is the head where nothing says it
  bool either_ties = false;          // text_config may say it, too, not what is around it alone
};

/// All families, by name.
[[nodiscard]] std::span<const Family* const> families();
[[nodiscard]] std::span<const Wrapper> wrappers();

/// Reads and checks the configuration of a model. Errors name file, key and both values.
[[nodiscard]] DecoderConfig read_gguf_config(const GgufSettings& settings,
                                             const WeightSource& weights);

/// What follows the last norm of a model in a folder, by the class that its config.json names.
enum class FolderHead : uint8_t {
  kTokens,  // "LlamaForCausalLM"
  kScore,   // "LlamaForSequenceClassification": the logits of labels
  kNone     // "LlamaModel"
};

/// What a config.json says.
struct FolderConfig {
  DecoderConfig decoder;
  FolderHead head = FolderHead::kTokens;
  std::vector<std::string> unread;  // settings that were not read: "text_config.new"
  bool is_text_half = false;        // of a model that takes more than text
};
/// Reads and checks a folder's config.json, of a wrapper its text half.
[[nodiscard]] FolderConfig read_folder_config(const files::Json& object, const std::string& path,
                                              const WeightSource& weights);

// For the families' readers.

/// Biases, by key in folders and by the tensors that exist in GGUF.
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
