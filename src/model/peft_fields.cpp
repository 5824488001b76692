#include "model/peft_fields.h"

#include <utility>

#include "files/edit_distance.h"
#include "files/printable.h"
#include "model/config/words.h"

namespace heddle::model {
namespace {

using Kind = AdapterFieldKind;

struct Fields {
  Kind kind;
  std::string_view names;  // separated by spaces
};
/// The fields of LoraConfig of PEFT 0.21, and of 0.2 and before enable_lora (merged layers, refused
/// where set) and merge_weights (when to merge).
constexpr Fields kFields[] = {
    {Kind::kRead,
     "alora_invocation_tokens alpha_pattern arrow_config base_model_name_or_path bias "
     "ensure_weight_tying exclude_modules fan_in_fan_out init_lora_weights kasa_config "
     "layer_replication layers_pattern layers_to_transform lora_alpha lora_bias megatron_config "
     "modules_to_save monteclora_config peft_type r rank_pattern target_modules "
     "target_parameters trainable_token_indices use_bdlora use_dora use_qalora use_rslora "
     "enable_lora"},
    {Kind::kObject,
     "auto_mapping corda_config eva_config loftq_config lora_ga_config runtime_config "
     "velora_config"},
    {Kind::kFlag, "inference_mode merge_weights"},
    {Kind::kNumber, "lora_dropout qalora_group_size"},
    {Kind::kText, "megatron_core peft_version revision task_type"},
};

constexpr size_t kNear = 2;      // edits of a slip
constexpr size_t kLongest = 64;  // bytes; longer names are near none

}  // namespace

std::optional<AdapterFieldKind> find_adapter_field(std::string_view name) {
  for (const auto& [kind, names] : kFields) {
    if (is_word_of(names, name)) return kind;
  }
  return std::nullopt;
}

std::string unknown_adapter_field(const std::string& path, std::string_view name) {
  std::string text =
      path + ": " + files::quote(name) + " is a field that heddle does not know, and so is ignored";
  if (name.size() > kLongest) return text;
  std::string_view best;
  size_t least = kNear + 1;
  for (const Fields& fields : kFields) {
    for_words(fields.names, [&](std::string_view field) {
      const size_t distance = files::edit_distance(name, field);
      // Two edits make any name of a few letters out of any other.
      if (distance > kNear || 3 * distance > field.size()) return;
      if (std::pair(distance, field) < std::pair(least, best)) {
        least = distance;
        best = field;
      }
    });
  }
  if (best.empty()) return text;
  return text + "; did you mean " + std::string(best) + '?';
}

}  // namespace heddle::model
