#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/adapters/kinds/adapter_method.h"
#include "model/adapters/module_pattern.h"

namespace heddle::model {

/// A field that names modules: a list of names, of which a module's name must be one or end with
/// one, or a string, which is an expression for the whole name ("all-linear" means every layer
/// that heddle adapts).
struct ModuleSet {
  std::set<std::string, std::less<>> names;
  std::optional<ModulePattern> expression;
  std::string text;  // as in the file, shortened: for messages and inspection
  bool all_linear = false;

  [[nodiscard]] bool contains(std::string_view module) const;
};

/// The fields of PEFT's adapter_config.json that say what an adapter computes; those that only
/// steer training are left out. docs/files.md lists both, and those that are refused. Modules are
/// named as in the base model, such as "model.layers.3.self_attn.q_proj".
struct AdapterConfig {
  std::string path;        // begins every error
  std::string base_model;  // as the file names it; empty where it does not
  AdapterMethod method = AdapterMethod::kLora;
  int64_t r = 8;
  double lora_alpha = 8.0;  // or what the method calls it
  bool use_rslora = false;
  bool fan_in_fan_out =
      false;  // no effect: PEFT ignores it for linear layers, and Llama has no others
  std::optional<ModuleSet> target_modules, exclude_modules;
  std::set<int64_t> layers_to_transform;                        // empty: all
  std::vector<ModulePattern> layers_pattern;                    // empty: any
  std::vector<std::pair<ModulePattern, int64_t>> rank_pattern;  // the first match wins
  std::vector<std::pair<ModulePattern, double>> alpha_pattern;
  bool use_dora = false;         // every pair has a magnitude
  bool lora_bias = false;        // every pair of a linear layer has a bias
  int64_t projection_key = 0;    // of VeRA: what draws the matrices that all modules share,
  bool saves_projection = true;  // unless they are in the file
  bool uses_velora = false;      // pairs may have what VeLoRA's training projected on
  bool trains_bias = false;      // adapted layers may have biases in place of their own
  // Of embedding and head: whether they are in modules_to_save, and trainable_token_indices.
  bool saves_embedding = false, saves_head = false;
  bool saves_score = false;  // the score head is one of modules_to_save
  std::vector<int32_t> embedding_tokens, head_tokens;
  std::vector<int32_t> invocation_tokens;  // of aLoRA, or empty
  bool ensure_weight_tying = false;        // what is for the embedding may be for the head, too
  /// What replaces "model." in the names of modules that the patterns are for: where the decoder
  /// lies in a model that takes more than text.
  std::string decoder = "model.";
  std::vector<std::string> warnings;  // of fields that heddle does not know

  /// "model.language_model.layers.3.self_attn.q_proj" for "model.layers.3.self_attn.q_proj".
  [[nodiscard]] std::string whole_name(std::string_view module) const;
  [[nodiscard]] int64_t rank_of(std::string_view module) const;
  /// alpha / rank, or alpha / sqrt(rank) with use_rslora, in double and then rounded to f32.
  [[nodiscard]] float scale_of(std::string_view module) const;
  /// Whether the adapter applies to the module; true where the file does not say what it targets.
  [[nodiscard]] bool targets(std::string_view module) const;
  /// Whether it applies to the embedding or the head, which "all-linear" leaves out.
  [[nodiscard]] bool targets_vocabulary(std::string_view module) const;
};

/// Reads the text of adapter_config.json; `path` begins every error.
[[nodiscard]] AdapterConfig parse_adapter_config(std::string_view json, const std::string& path);

}  // namespace heddle::model
