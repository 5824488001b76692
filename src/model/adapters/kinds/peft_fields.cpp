#include "model/adapters/kinds/peft_fields.h"

#include <array>
#include <span>
#include <utility>

#include "files/edit_distance.h"
#include "files/printable.h"
#include "model/config/words.h"

namespace heddle::model {
namespace {

using Type = AdapterFieldKind;

struct Fields {
  Type type;
  std::string_view names;  // separated by spaces
};
// Of PEFT 0.21.
constexpr Fields kAllFields[] = {
    {Type::kRead,
     "base_model_name_or_path bias exclude_modules fan_in_fan_out layers_pattern "
     "layers_to_transform modules_to_save peft_type target_modules"},
    {Type::kObject, "auto_mapping"},
    {Type::kFlag, "inference_mode"},
    {Type::kText, "peft_version revision task_type"},
};
/// LoraConfig's, and of 0.2 and before enable_lora (merged layers, refused where set) and
/// merge_weights (when to merge).
constexpr Fields kLoraFields[] = {
    {Type::kRead,
     "alora_invocation_tokens alpha_pattern arrow_config ensure_weight_tying init_lora_weights "
     "kasa_config layer_replication lora_alpha lora_bias megatron_config monteclora_config r "
     "rank_pattern target_parameters trainable_token_indices use_bdlora use_dora use_qalora "
     "use_rslora velora_config enable_lora"},
    {Type::kObject, "corda_config eva_config loftq_config lora_ga_config runtime_config"},
    {Type::kFlag, "merge_weights"},
    {Type::kNumber, "lora_dropout qalora_group_size"},
    {Type::kText, "megatron_core"},
};
constexpr Fields kLohaFields[] = {
    {Type::kRead, "alpha alpha_pattern r rank_pattern"},
    {Type::kFlag, "init_weights use_effective_conv2d"},
    {Type::kNumber, "module_dropout rank_dropout"},
};
constexpr Fields kVeraFields[] = {
    {Type::kRead, "r"},
    {Type::kFlag, "init_weights save_projection"},
    {Type::kNumber, "d_initial projection_prng_key vera_dropout"},
};
constexpr Fields kRandLoraFields[] = {
    {Type::kRead, "r randlora_alpha"},
    {Type::kFlag, "init_weights save_projection sparse very_sparse"},
    {Type::kNumber, "projection_prng_key randlora_dropout"},
};
// Whether a layer is one of feedforward_modules is in the shape of its tensor.
constexpr Fields kIa3Fields[] = {
    {Type::kRead, "feedforward_modules"},
    {Type::kFlag, "init_ia3_weights"},
};

std::array<std::span<const Fields>, 2> fields_of(AdapterMethod method) {
  switch (method) {
    case AdapterMethod::kLora: return {kAllFields, kLoraFields};
    case AdapterMethod::kLoha: return {kAllFields, kLohaFields};
    case AdapterMethod::kVera: return {kAllFields, kVeraFields};
    case AdapterMethod::kRandLora: return {kAllFields, kRandLoraFields};
    case AdapterMethod::kIa3: return {kAllFields, kIa3Fields};
    case AdapterMethod::kMlx: break;  // its fields are those of its program
  }
  return {};
}

constexpr size_t kNear = 2;      // edits of a slip
constexpr size_t kLongest = 64;  // bytes; longer names are near none

}  // namespace

std::optional<AdapterFieldKind> find_adapter_field(AdapterMethod method, std::string_view name) {
  for (const std::span<const Fields> group : fields_of(method)) {
    for (const auto& [type, names] : group) {
      if (is_word_of(names, name)) return type;
    }
  }
  return std::nullopt;
}

std::string unknown_adapter_field(const std::string& path, AdapterMethod method,
                                  std::string_view name) {
  std::string text =
      path + ": " + files::quote(name) + " is a field that heddle does not know, and so is ignored";
  if (name.size() > kLongest) return text;
  std::string_view best;
  size_t least = kNear + 1;
  const auto consider = [&](std::string_view field) {
    const size_t distance = files::edit_distance(name, field);
    // Two edits make any name of a few letters out of any other.
    if (distance > kNear || 3 * distance > field.size()) return;
    if (std::pair(distance, field) < std::pair(least, best)) {
      least = distance;
      best = field;
    }
  };
  for (const std::span<const Fields> group : fields_of(method)) {
    for (const Fields& fields : group) for_words(fields.names, consider);
  }
  if (best.empty()) return text;
  return text + "; did you mean " + std::string(best) + '?';
}

}  // namespace heddle::model
