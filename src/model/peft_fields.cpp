#include "model/peft_fields.h"

#include <algorithm>

#include "files/edit_distance.h"
#include "files/printable.h"

namespace heddle::model {
namespace {

using Kind = AdapterField::Kind;

/// The fields of LoraConfig of PEFT 0.21, and below them those of versions before.
constexpr AdapterField kFields[] = {
    {"alora_invocation_tokens", Kind::kRead},
    {"alpha_pattern", Kind::kRead},
    {"arrow_config", Kind::kRead},
    {"auto_mapping", Kind::kObject},
    {"base_model_name_or_path", Kind::kRead},
    {"bias", Kind::kRead},
    {"corda_config", Kind::kObject},
    {"ensure_weight_tying", Kind::kRead},
    {"eva_config", Kind::kObject},
    {"exclude_modules", Kind::kRead},
    {"fan_in_fan_out", Kind::kRead},
    {"inference_mode", Kind::kFlag},
    {"init_lora_weights", Kind::kRead},
    {"kasa_config", Kind::kRead},
    {"layer_replication", Kind::kRead},
    {"layers_pattern", Kind::kRead},
    {"layers_to_transform", Kind::kRead},
    {"loftq_config", Kind::kObject},
    {"lora_alpha", Kind::kRead},
    {"lora_bias", Kind::kRead},
    {"lora_dropout", Kind::kNumber},
    {"lora_ga_config", Kind::kObject},
    {"megatron_config", Kind::kRead},
    {"megatron_core", Kind::kText},
    {"modules_to_save", Kind::kRead},
    {"monteclora_config", Kind::kRead},
    {"peft_type", Kind::kRead},
    {"peft_version", Kind::kText},
    {"qalora_group_size", Kind::kNumber},
    {"r", Kind::kRead},
    {"rank_pattern", Kind::kRead},
    {"revision", Kind::kText},
    {"runtime_config", Kind::kObject},
    {"target_modules", Kind::kRead},
    {"target_parameters", Kind::kRead},
    {"task_type", Kind::kText},
    {"trainable_token_indices", Kind::kRead},
    {"use_bdlora", Kind::kRead},
    {"use_dora", Kind::kRead},
    {"use_qalora", Kind::kRead},
    {"use_rslora", Kind::kRead},
    {"velora_config", Kind::kObject},
    {"enable_lora", Kind::kRead},    // of 0.2 and before: merged layers, refused where set
    {"merge_weights", Kind::kFlag},  // of 0.2 and before: when to merge
};

constexpr size_t kNear = 2;      // edits of a slip
constexpr size_t kLongest = 64;  // bytes; longer names are near none

}  // namespace

const AdapterField* find_adapter_field(std::string_view name) {
  const auto* const found = std::ranges::find(kFields, name, &AdapterField::name);
  return found == std::ranges::end(kFields) ? nullptr : found;
}

std::string unknown_adapter_field(const std::string& path, std::string_view name) {
  std::string text =
      path + ": " + files::quote(name) + " is a field that heddle does not know, and so is ignored";
  if (name.size() > kLongest) return text;
  std::string_view best;
  size_t least = kNear + 1;
  for (const AdapterField& field : kFields) {
    const size_t distance = files::edit_distance(name, field.name);
    // Two edits make any name of a few letters out of any other.
    if (distance >= least || 3 * distance > field.name.size()) continue;
    least = distance;
    best = field.name;
  }
  if (best.empty()) return text;
  return text + "; did you mean " + std::string(best) + '?';
}

}  // namespace heddle::model
