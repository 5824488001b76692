#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::model {

/// Names of modules: a list of suffixes, or one regular expression (then `names` holds just it).
struct ModulePattern {
  bool is_regex = false;
  std::vector<std::string> names;
};

/// The fields of PEFT's adapter_config.json that say what a LoRA adapter computes; those that only
/// steer training are left out. docs/files.md lists both, and those that are refused.
struct AdapterConfig {
  std::string path;  // for errors
  std::string base_model;
  int64_t r = 8;
  double lora_alpha = 8.0;
  bool use_rslora = false;
  bool fan_in_fan_out =
      false;  // no effect: PEFT ignores it for linear layers, and Llama has no others
  std::optional<ModulePattern> target_modules, exclude_modules;
  std::vector<int64_t> layers_to_transform;  // empty: all
  std::vector<std::string> layers_pattern;   // empty: any
  std::vector<std::pair<std::string, int64_t>>
      rank_pattern;  // first match wins, in the file's order
  std::vector<std::pair<std::string, double>> alpha_pattern;

  /// The rank of a module such as "model.layers.3.self_attn.q_proj".
  [[nodiscard]] int64_t rank_of(const std::string& module) const;
  /// lora_alpha / rank, or lora_alpha / sqrt(rank) with use_rslora, rounded to f32 at the end.
  [[nodiscard]] float scale_of(const std::string& module) const;
  /// Whether the adapter applies to the module; true where the file does not say what it targets.
  [[nodiscard]] bool targets(const std::string& module) const;
};

/// Reads the text of adapter_config.json; `path` begins every error.
[[nodiscard]] AdapterConfig parse_adapter_config(std::string_view json, const std::string& path);

}  // namespace heddle::model
