#include "model/source/text/extra_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

using files::Json;
using tokenizer::ExtraToken;

/// Roles in transformers' order, which is that of new ids. Others follow in the file's order.
constexpr std::array<std::string_view, 7> kRoles = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

bool is_role(std::string_view key) { return std::ranges::find(kRoles, key) != kRoles.end(); }

/// A file whose members keep their order; null where it is not there.
files::JsonTree read_ordered(const std::string& path, const files::FolderBounds& bounds) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  auto json = files::parse_json(read_text(path, bounds), path);
  HEDDLE_CHECK(json->is_object(), path, ": is ", files::json_kind(*json), ", expected an object");
  return json;
}

/// "<|im_end|>", or an object of it and its flags.
ExtraToken read_token(const Json& value, const std::string& where) {
  ExtraToken token;
  if (value.is_string()) {
    token.content = files::text_of(value);
    token.special = true;
    token.normalized = false;
    return token;
  }
  HEDDLE_CHECK(value.is_object(), where, " is ", files::json_kind(value),
               ", expected a string, or an object of content and flags");
  const Json* const content = files::find_member(value, "content");
  HEDDLE_CHECK(content != nullptr && content->is_string(), where,
               " has no content, expected a string");
  token.content = files::text_of(*content);
  const auto flag = [&](const char* name, bool by_default) {
    const Json* const found = files::find_member(value, name);
    if (found == nullptr || found->is_null()) return by_default;
    HEDDLE_CHECK(found->is_bool(), where, ".", name, " is ", files::json_kind(*found),
                 ", expected true or false");
    return found->get_bool();
  };
  token.special = flag("special", false);
  token.normalized = flag("normalized", !token.special);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.single_word = flag("single_word", false);
  return token;
}

/// What the files of one folder add.
class ExtraTokens {
 public:
  ExtraTokens(const std::string& folder, const files::FolderBounds& bounds)
      : config_path_(folder + "/tokenizer_config.json"),
        config_(read_ordered(config_path_, bounds)) {
    const auto* const decoder = find(*config_, "added_tokens_decoder");
    if (decoder != nullptr) {
      read_decoder(*decoder);
    } else {
      map_path_ = folder + "/special_tokens_map.json";
      map_.emplace(read_ordered(map_path_, bounds));
      added_path_ = folder + "/added_tokens.json";
      added_.emplace(read_ordered(added_path_, bounds));
    }
    read_roles();
    read_unnamed();
    if (added_) read_added(**added_);
  }

  /// In the order in which they are added.
  std::vector<ExtraToken> take() && {
    std::vector<ExtraToken> tokens;
    for (auto& [id, token] : by_id_) tokens.push_back(std::move(token));
    for (ExtraToken& token : roles_) tokens.push_back(std::move(token));
    for (ExtraToken& token : unnamed_) tokens.push_back(std::move(token));
    return tokens;
  }

 private:
  static const Json* find(const Json& object, std::string_view key) {
    const Json* const found = files::find_member(object, key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  /// The value of a key, of special_tokens_map.json where that has it, and where it lies.
  std::pair<const Json*, std::string> find_in_both(std::string_view key) const {
    if (map_) {
      if (const auto* value = find(**map_, key))
        return {value, map_path_ + ": " + std::string(key)};
    }
    return {find(*config_, key), config_path_ + ": " + std::string(key)};
  }

  void read_decoder(const Json& decoder) {
    const std::string where = config_path_ + ": added_tokens_decoder";
    HEDDLE_CHECK(decoder.is_object(), where, " is ", files::json_kind(decoder),
                 ", expected an object of ids and tokens");
    for (const auto& member : decoder.get_object()) {
      const std::string key(member.key());
      const Json& value = member.value();
      int64_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      HEDDLE_CHECK(error == std::errc() && end == key.data() + key.size() && id >= 0, where,
                   " has the key ", files::quote(key), ", expected the id of a token");
      const std::string place = where + "." + key;
      HEDDLE_CHECK(value.is_object(), place, " is ", files::json_kind(value),
                   ", expected an object of content and flags");
      ExtraToken token = read_token(value, place);
      token.replaces = true;
      by_id_[id] = std::move(token);
    }
  }

  void read_roles() {
    for (const std::string_view role : kRoles) {
      const auto [value, where] = find_in_both(role);
      if (value != nullptr) add_role(read_token(*value, where));
    }
    if (config_->is_object()) {
      for (const auto& member : config_->get_object()) {
        const std::string key(member.key());
        const Json& value = member.value();
        if (!is_role(key) && key.ends_with("_token") && value.is_string()) {
          add_role(read_token(value, config_path_ + ": " + key));
        }
      }
    }
    const auto [extra, where] = find_in_both("extra_special_tokens");
    if (extra == nullptr || !extra->is_object()) return;
    for (const auto& member : extra->get_object()) {
      add_role(read_token(member.value(), where + "." + std::string(member.key())));
    }
  }

  void add_role(ExtraToken token) {
    for (auto& [id, known] : by_id_) {
      if (known.content == token.content) known.special = true;
    }
    token.special = true;
    roles_.push_back(std::move(token));
  }

  void read_unnamed() {
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
      const auto [value, where] = find_in_both(key);
      if (value == nullptr || (files::is_container(*value) && files::size_of(*value) == 0))
        continue;
      if (value->is_object() && std::string_view(key) == "extra_special_tokens") return;
      HEDDLE_CHECK(value->is_array(), where, " is ", files::json_kind(*value),
                   ", expected a list of tokens");
      for (const Json& each : value->get_array()) unnamed_.push_back(read_token(each, where));
      return;
    }
  }

  /// {"<extra>": 32000}: special where it has a role, too.
  void read_added(const Json& added) {
    if (!added.is_object()) return;
    for (const auto& member : added.get_object()) {
      const std::string content(member.key());
      const std::optional<int64_t> id = files::integer_of(member.value());
      HEDDLE_CHECK(id && *id >= 0, added_path_, ": token ", files::quote(content), " has as id ",
                   files::json_kind(member.value()), ", expected an integer of 0 or more");
      const auto is_same = [&](const ExtraToken& token) { return token.content == content; };
      const bool special =
          std::ranges::any_of(roles_, is_same) || std::ranges::any_of(unnamed_, is_same);
      by_id_[*id] = {.content = content, .special = special, .normalized = !special};
    }
  }

  std::string config_path_, map_path_, added_path_;
  files::JsonTree config_;
  std::optional<files::JsonTree> map_, added_;
  std::map<int64_t, ExtraToken> by_id_;
  std::vector<ExtraToken> roles_, unnamed_;
};

}  // namespace

std::vector<ExtraToken> read_extra_tokens(const std::string& folder,
                                          const files::FolderBounds& bounds) {
  return ExtraTokens(folder, bounds).take();
}

}  // namespace heddle::model
