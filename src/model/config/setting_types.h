#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"

namespace heddle::model {

/// The kinds of JSON that a setting may be, as a set of bits. Null is always allowed.
enum SettingKind : unsigned {
  kFlag = 1u << 0,
  kInteger = 1u << 1,  // 8.0 too
  kNumber = 1u << 2,
  kText = 1u << 3,
  kList = 1u << 4,
  kObject = 1u << 5,
};

/// Settings of one type: names that spaces separate.
struct SettingTypes {
  unsigned kinds;
  std::string_view names;
};

/// Error(kInvalidArgument) that names file, field and value where a member of the object that the
/// table knows is of another kind: also where nothing would read it, so that no setting is void
/// because of its type. `where` comes before a name: "config.json: text_config.".
void check_setting_types(const files::Json& object, const std::string& where,
                         std::span<const SettingTypes> types);

/// Whether a setting of config.json says nothing of what text models compute, or what is said
/// elsewhere.
[[nodiscard]] bool is_neutral_setting(std::string_view name);
/// Of generation_config.json.
[[nodiscard]] std::span<const SettingTypes> generation_setting_types();
/// Of tokenizer_config.json and special_tokens_map.json.
[[nodiscard]] std::span<const SettingTypes> tokenizer_setting_types();

/// Members of rope_scaling and rope_parameters of a config.json, or of its text_config, that heddle
/// knows nothing of: "rope_scaling.new".
[[nodiscard]] std::vector<std::string> unknown_rope_settings(const files::Json& config);

/// Checks all of a config.json: it, its text_config, and the rotations in both.
void check_config_types(const files::Json& config, const std::string& path);

}  // namespace heddle::model
