#include "model/adapters/adapter_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/adapters/kinds/mlx_config.h"
#include "model/adapters/kinds/peft_fields.h"
#include "model/config/words.h"

namespace heddle::model {
namespace {

using files::is_bool;
using files::is_text;
using files::Json;
using files::size_of;

constexpr size_t kMaxFile = size_t{1} << 20;
constexpr files::JsonLimits kLimits{.depth = 32, .members = 4096};
constexpr size_t kMaxExpressions = 64;  // in one field; plain names are not counted

// Fields that change what an adapter computes, in ways that heddle does not: accepted only where
// they are unset.
constexpr const char* kUnsupported[] = {
    "target_parameters", "layer_replication", "use_qalora",      "use_bdlora",  "arrow_config",
    "kasa_config",       "monteclora_config", "megatron_config", "enable_lora",
};

// Initialisations that take the adapter's first value out of the base weights: what is trained on
// top belongs to those changed weights. PEFT writes true in their place when it converts such an
// adapter to one for the plain base model.
constexpr const char* kChangesBase[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};
// Initialisations that leave the base weights as they are.
constexpr std::string_view kKeepsBase = "gaussian eva orthogonal mica";

bool is_unset(const Json& value) {
  return value.is_null() || is_bool(value, false) || is_text(value, "") ||
         (files::is_container(value) && size_of(value) == 0);
}

std::string shown(const Json& value) { return files::printable(files::json_text(value)); }

class ConfigReader {
 public:
  ConfigReader(const Json& root, AdapterConfig& config) : root_(root), config_(config) {}

  void run() {
    config_.method = method();
    refuse_unsupported();
    check_fields();
    if (const auto* value = find("base_model_name_or_path")) {
      config_.base_model = string("base_model_name_or_path", *value);
    }
    read_scale();
    config_.fan_in_fan_out = flag("fan_in_fan_out");
    read_saved_modules();
    if (config_.method == AdapterMethod::kVera) read_projection();
    if (config_.method == AdapterMethod::kLora) {
      read_variants();
    } else if (const auto* bias = find("bias"); bias != nullptr && !is_text(*bias, "none")) {
      unsupported("bias", *bias, "supported: \"none\"");
    }
    config_.target_modules = modules("target_modules");
    config_.exclude_modules = modules("exclude_modules");
    read_layers();
    config_.rank_pattern = patterns<int64_t>(
        "rank_pattern", [&](const auto& field, const auto& value) { return rank(field, value); });
    config_.alpha_pattern = patterns<double>(
        "alpha_pattern",
        [&](const auto& field, const auto& value) { return number(field, value); });
  }

 private:
  [[nodiscard]] std::string context(const std::string& field) const {
    return config_.path + ": " + field;
  }
  [[noreturn]] void wrong(const std::string& field, const Json& value, const char* expected) const {
    throw_error(ErrorCode::kInvalidArgument, context(field), " is ", shown(value), ", expected ",
                expected);
  }
  [[noreturn]] void unsupported(const char* field, const Json& value, const char* why) const {
    throw_error(ErrorCode::kUnsupported, context(field), " is ", shown(value), ", ", why);
  }

  // Null where the field is missing or null, which mean the same to PEFT.
  [[nodiscard]] const Json* find(const char* field) const {
    const Json* const found = files::find_member(root_, field);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  [[nodiscard]] AdapterMethod method() const {
    const auto* type = find("peft_type");
    HEDDLE_CHECK(type != nullptr, config_.path, ": has no peft_type, expected \"LORA\"");
    const std::string name = string("peft_type", *type);
    if (const AdapterMethodInfo* known = find_method(name)) return known->method;
    throw_error(ErrorCode::kUnsupported, context("peft_type"), " is ", shown(*type), ": ",
                why_not(name),
                "; supported: LORA, LOHA, VERA, RANDLORA and IA3; merge the adapter "
                "(merge_and_unload) and run that model");
  }

  void read_scale() {
    const AdapterMethodInfo& info = info_of(config_.method);
    config_.r = info.r;
    config_.lora_alpha = info.alpha;
    if (const auto* value = find("r")) config_.r = rank("r", *value);
    const std::string field(info.alpha_field);
    if (field.empty()) return;
    if (const auto* value = find(field.c_str())) config_.lora_alpha = number(field, *value);
  }

  void read_projection() {
    if (find("save_projection") != nullptr) config_.saves_projection = flag("save_projection");
    const auto* key = find("projection_prng_key");
    if (key == nullptr) return;
    if (!key->is_int64()) wrong("projection_prng_key", *key, "an integer");
    config_.projection_key = key->get_int64();
  }

  /// What LoRA alone has.
  void read_variants() {
    config_.use_rslora = flag("use_rslora");
    config_.use_dora = flag("use_dora");
    config_.lora_bias = flag("lora_bias");
    if (config_.lora_bias && config_.use_dora) {  // PEFT refuses this too
      unsupported("lora_bias", *find("lora_bias"), "which is not supported with use_dora");
    }
    const auto* velora = find("velora_config");
    config_.uses_velora = velora != nullptr && !is_unset(*velora);
    config_.ensure_weight_tying = flag("ensure_weight_tying");
    read_token_indices();
    read_invocation();
    read_bias();
  }

  void refuse_unsupported() const {
    if (config_.method != AdapterMethod::kLora) return;  // other methods have no such fields
    for (const char* field : kUnsupported) {
      const auto* value = find(field);
      if (value != nullptr && !is_unset(*value))
        unsupported(field, *value, "which is not supported");
    }
    const auto* init = find("init_lora_weights");
    if (init == nullptr || init->is_bool()) return;
    std::string method = string("init_lora_weights", *init);
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const char* name : kChangesBase) {
      if (!method.starts_with(name)) continue;
      unsupported("init_lora_weights", *init,
                  "which adapts a changed base model; only an adapter converted to plain LoRA is "
                  "supported");
    }
    if (is_word_of(kKeepsBase, method)) return;
    unsupported("init_lora_weights", *init,
                "which heddle does not know, so it may adapt a changed base model; where it leaves "
                "the base weights as they are write true in its place");
  }

  /// Warns of fields that heddle does not know, and refuses values of a wrong type in those that
  /// it does not read.
  void check_fields() {
    for (const auto& member : root_.get_object()) {
      const std::string field(member.key());
      const Json& value = member.value();
      const auto known = find_adapter_field(config_.method, field);
      if (!known) {
        config_.warnings.push_back(unknown_adapter_field(config_.path, config_.method, field));
        continue;
      }
      if (value.is_null()) continue;
      const auto expect = [&, own = *known](AdapterFieldKind kind, bool is_of, const char* type) {
        if (own == kind && !is_of) wrong(field, value, type);
      };
      expect(AdapterFieldKind::kText, value.is_string(), "a string");
      expect(AdapterFieldKind::kNumber, value.is_number(), "a number");
      expect(AdapterFieldKind::kFlag, value.is_bool(), "true or false");
      expect(AdapterFieldKind::kObject, value.is_object(), "an object");
    }
  }

  void read_bias() {
    const auto* bias = find("bias");
    if (bias == nullptr || is_text(*bias, "none")) return;
    if (!is_text(*bias, "all") && !is_text(*bias, "lora_only")) {
      wrong("bias", *bias, "\"none\", \"all\" or \"lora_only\"");
    }
    config_.trains_bias = true;
    if (!config_.invocation_tokens.empty()) {
      unsupported("bias", *bias, "which is not supported with alora_invocation_tokens");
    }
  }

  [[nodiscard]] std::string string(const std::string& field, const Json& value) const {
    if (!value.is_string()) wrong(field, value, "a string");
    return std::string(files::text_of(value));
  }
  [[nodiscard]] bool flag(const char* field) const {
    const auto* value = find(field);
    if (value == nullptr) return false;
    if (!value->is_bool()) wrong(field, *value, "true or false");
    return value->get_bool();
  }
  [[nodiscard]] double number(const std::string& field, const Json& value) const {
    if (!value.is_number()) wrong(field, value, "a number");
    return files::number_of(value);
  }
  // A count that is 0 or more and fits.
  [[nodiscard]] int64_t index(const std::string& field, const Json& value) const {
    const auto number = files::integer_in(value, 0, std::numeric_limits<int32_t>::max());
    if (!number) wrong(field, value, "an integer of 0 or more");
    return *number;
  }
  // Tools that keep numbers as floats write 8.0.
  [[nodiscard]] int64_t rank(const std::string& field, const Json& value) const {
    if (const double* const number = value.if_double()) {
      const bool is_rank = *number >= 1 && *number <= std::numeric_limits<int32_t>::max() &&
                           *number == std::floor(*number);
      if (!is_rank) wrong(field, value, "an integer of 1 or more");
      return static_cast<int64_t>(*number);
    }
    if (!files::is_integer(value) || files::number_of(value) <= 0) {
      wrong(field, value, "an integer of 1 or more");
    }
    return index(field, value);
  }

  // A list of strings, or the one string that some fields may be instead.
  [[nodiscard]] std::vector<std::string> strings(const char* field, const Json& value) const {
    if (value.is_string()) return {std::string(files::text_of(value))};
    if (!value.is_array()) wrong(field, value, "a string or a list of strings");
    std::vector<std::string> result;
    for (const Json& element : value.get_array()) {
      if (!element.is_string()) wrong(field, value, "a string or a list of strings");
      result.emplace_back(files::text_of(element));
    }
    return result;
  }

  [[nodiscard]] std::optional<ModuleSet> modules(const char* field) const {
    const auto* value = find(field);
    if (value == nullptr || is_unset(*value)) return std::nullopt;
    ModuleSet set;
    set.text = shown(*value);
    const std::vector<std::string> given = strings(field, *value);
    if (value->is_string()) {
      set.all_linear = given[0] == "all-linear";
      set.expression = ModulePattern::whole(set.all_linear ? ".*" : given[0], context(field));
    } else {
      set.names.insert(given.begin(), given.end());
    }
    return set;
  }

  void read_layers() {
    const auto* layers = find("layers_to_transform");
    if (layers != nullptr && layers->is_array()) {
      for (const Json& layer : layers->get_array()) {
        config_.layers_to_transform.insert(index("layers_to_transform", layer));
      }
    } else if (layers != nullptr) {
      config_.layers_to_transform.insert(index("layers_to_transform", *layers));
    }
    const auto* pattern = find("layers_pattern");
    if (pattern != nullptr && !is_unset(*pattern)) {
      const std::vector<std::string> keys = strings("layers_pattern", *pattern);
      check_expressions("layers_pattern", keys.size());
      for (const std::string& key : keys) {
        config_.layers_pattern.push_back(ModulePattern::numbered(key, context("layers_pattern")));
      }
    }
    // PEFT refuses this too: an expression for the whole name says the layers itself.
    HEDDLE_CHECK(config_.layers_to_transform.empty() || !config_.target_modules ||
                     !config_.target_modules->expression,
                 config_.path, ": layers_to_transform is set, but target_modules is ",
                 config_.target_modules->text, ", expected a list of names");
  }

  /// What `embedding` and `head` name is the one or the other: "lm_head", "model.embed_tokens".
  template <class T>
  [[nodiscard]] static T* vocabulary_part(std::string_view module, T& embedding, T& head) {
    const std::string_view name = module.substr(module.rfind('.') + 1);
    return name == "embed_tokens" ? &embedding : name == "lm_head" ? &head : nullptr;
  }

  void read_saved_modules() {
    const auto* value = find("modules_to_save");
    if (value == nullptr || is_unset(*value)) return;
    for (const std::string& module : strings("modules_to_save", *value)) {
      // PEFT adds both where an adapter classifies, whichever of them the model has.
      if (module == "score" || module == "classifier") {
        config_.saves_score = true;
        continue;
      }
      bool* const part = vocabulary_part(module, config_.saves_embedding, config_.saves_head);
      if (part == nullptr) {
        unsupported("modules_to_save", *value,
                    "supported: \"embed_tokens\", \"lm_head\" and \"score\"");
      }
      *part = true;
    }
  }

  [[nodiscard]] std::vector<int32_t> token_ids(const char* field, const Json& list) const {
    if (!list.is_array()) wrong(field, list, "a list of token ids");
    std::vector<int32_t> ids;
    for (const Json& id : list.get_array()) ids.push_back(static_cast<int32_t>(index(field, id)));
    return ids;
  }

  void read_invocation() {
    const char* const field = "alora_invocation_tokens";
    const auto* value = find(field);
    if (value == nullptr || is_unset(*value)) return;
    config_.invocation_tokens = token_ids(field, *value);
    // PEFT refuses this too.
    if (config_.use_dora) unsupported(field, *value, "which is not supported with use_dora");
  }

  void read_token_indices() {
    const char* const field = "trainable_token_indices";
    const auto* value = find(field);
    if (value == nullptr || is_unset(*value)) return;
    if (!value->is_object()) {
      config_.embedding_tokens = token_ids(field, *value);
      return;
    }
    for (const auto& member : value->get_object()) {
      const std::string_view module = member.key();
      auto* const ids = vocabulary_part(module, config_.embedding_tokens, config_.head_tokens);
      if (ids == nullptr) {
        unsupported(field, *value, "supported: tokens of \"embed_tokens\" and \"lm_head\"");
      }
      HEDDLE_CHECK(ids->empty(), context(field), " names ", files::quote(module), " twice");
      *ids = token_ids(field, member.value());
    }
  }

  template <class T, class Read>
  [[nodiscard]] std::vector<std::pair<ModulePattern, T>> patterns(const char* field,
                                                                  const Read& read) const {
    std::vector<std::pair<ModulePattern, T>> result;
    const auto* value = find(field);
    if (value == nullptr) return result;
    if (!value->is_object()) wrong(field, *value, "an object");
    size_t expressions = 0;
    for (const auto& member : value->get_object()) {
      const std::string key(member.key());
      const std::string place = std::string(field) + '[' + files::quote(key) + ']';
      ModulePattern pattern = ModulePattern::ending(key, context(field));
      if (pattern.is_expression()) check_expressions(field, ++expressions);
      result.emplace_back(std::move(pattern), read(place, member.value()));
    }
    return result;
  }

  void check_expressions(const char* field, size_t count) const {
    HEDDLE_CHECK(count <= kMaxExpressions, context(field), " holds more than ", kMaxExpressions,
                 " regular expressions");
  }

  const Json& root_;
  AdapterConfig& config_;
};

template <class T>
T first_match(const std::vector<std::pair<ModulePattern, T>>& patterns, std::string_view module,
              T otherwise) {
  MatchSteps steps;
  for (const auto& [pattern, value] : patterns) {
    if (pattern.matches(module, steps)) return value;
  }
  return otherwise;
}

/// The number of the first segment that is one, or -1: 3 in "model.layers.3.mlp.up_proj".
int64_t layer_of(std::string_view module) {
  while (!module.empty()) {
    const std::string_view segment = module.substr(0, module.find('.'));
    module.remove_prefix(std::min(module.size(), segment.size() + 1));
    const bool is_number = !segment.empty() && segment.size() <= 9 &&
                           segment.find_first_not_of("0123456789") == segment.npos;
    if (is_number) return std::stoll(std::string(segment));
  }
  return -1;
}

}  // namespace

bool ModuleSet::contains(std::string_view module) const {
  if (expression) {
    MatchSteps steps;
    return expression->matches(module, steps);
  }
  for (;;) {  // the module's name, then what follows each of its dots
    if (names.contains(module)) return true;
    const size_t dot = module.find('.');
    if (dot == module.npos) return false;
    module.remove_prefix(dot + 1);
  }
}

std::string AdapterConfig::whole_name(std::string_view module) const {
  constexpr std::string_view kModel = "model.";
  if (!module.starts_with(kModel)) return std::string(module);
  return decoder + std::string(module.substr(kModel.size()));
}

int64_t AdapterConfig::rank_of(std::string_view module) const {
  return first_match(rank_pattern, whole_name(module), r);
}

float AdapterConfig::scale_of(std::string_view module) const {
  const double alpha = first_match(alpha_pattern, whole_name(module), lora_alpha);
  const double rank = static_cast<double>(rank_of(module));
  const float scale = static_cast<float>(alpha / (use_rslora ? std::sqrt(rank) : rank));
  HEDDLE_CHECK(std::isfinite(scale), path, ": the scale of ", files::printable(module), " is ",
               alpha, " over a function of rank ", rank, ", which is not a finite f32");
  return scale;
}

bool AdapterConfig::targets(std::string_view plain) const {
  const std::string module = whole_name(plain);
  if (exclude_modules && exclude_modules->contains(module)) return false;
  if (!target_modules) return true;
  if (!target_modules->contains(module)) return false;
  if (layers_to_transform.empty()) return true;
  MatchSteps steps;
  const bool in_pattern =
      layers_pattern.empty() ||
      std::any_of(layers_pattern.begin(), layers_pattern.end(),
                  [&](const ModulePattern& pattern) { return pattern.matches(module, steps); });
  return in_pattern && layers_to_transform.contains(layer_of(module));
}

bool AdapterConfig::targets_vocabulary(std::string_view module) const {
  return !(target_modules && target_modules->all_linear) && targets(module);
}

AdapterConfig parse_adapter_config(std::string_view json, const std::string& path) {
  HEDDLE_CHECK(json.size() <= kMaxFile, path, ": has ", json.size(), " bytes, at most ", kMaxFile,
               " are read");
  const auto root = files::parse_json(json, path, kLimits);
  HEDDLE_CHECK(root->is_object(), path, ": is ", files::json_kind(*root), ", expected an object");
  AdapterConfig config;
  config.path = path;
  if (is_mlx_config(*root)) {
    read_mlx_config(*root, config);
  } else {
    ConfigReader(*root, config).run();
  }
  return config;
}

}  // namespace heddle::model
