#include "answers/tool_types.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "answers/json_scanner.h"
#include "answers/python_calls.h"
#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"

namespace heddle::answers {
namespace {

using files::find_member;
using files::Json;
using files::text_of;

constexpr int kMaxReferences = 8;  // one after another, and of alternatives in alternatives

uint8_t type_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kTypes = {
      {{"string", kStringType},
       {"number", kNumberType},
       {"integer", kNumberType},
       {"boolean", kBooleanType},
       {"null", kNullType},
       {"object", kObjectType},
       {"array", kArrayType}}};
  for (const auto& [type, bit] : kTypes) {
    if (type == name) return bit;
  }
  return 0;
}

uint8_t type_of(const Json& value) {
  if (value.is_string()) return kStringType;
  if (value.is_number()) return kNumberType;
  if (value.is_bool()) return kBooleanType;
  if (value.is_null()) return kNullType;
  return value.is_object() ? kObjectType : kArrayType;
}

uint8_t types_within(const Json& schema, const Json& root, int depth);

/// Those of all alternatives; 0 where one of them does not say.
uint8_t types_of_alternatives(const Json& list, const Json& root, int depth) {
  uint8_t types = 0;
  if (!list.is_array()) return 0;
  for (const Json& schema : list.get_array()) {
    const uint8_t found = types_within(schema, root, depth);
    if (found == 0) return 0;
    types |= found;
  }
  return types;
}

uint8_t types_within(const Json& schema, const Json& root, int depth) {
  if (!schema.is_object() || depth > kMaxReferences) return 0;
  if (const Json* type = find_member(schema, "type"); type != nullptr) {
    if (type->is_string()) return type_named(text_of(*type));
    uint8_t types = 0;
    if (!type->is_array()) return 0;
    for (const Json& name : type->get_array()) {
      if (name.is_string()) types |= type_named(text_of(name));
    }
    return types;
  }
  if (const Json* constant = find_member(schema, "const"); constant != nullptr) {
    return type_of(*constant);
  }
  if (const Json* values = find_member(schema, "enum"); values != nullptr && values->is_array()) {
    uint8_t types = 0;
    for (const Json& value : values->get_array()) types |= type_of(value);
    return types;
  }
  if (const Json* to = find_member(schema, "$ref"); to != nullptr && to->is_string()) {
    const Json* found = find_reference(text_of(*to), root);
    return found == nullptr ? 0 : types_within(*found, root, depth + 1);
  }
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    const Json* list = find_member(schema, key);
    if (list != nullptr) return types_of_alternatives(*list, root, depth + 1);
  }
  const Json* all = find_member(schema, "allOf");
  if (all != nullptr && all->is_array()) {
    for (const Json& one : all->get_array()) {
      if (const uint8_t types = types_within(one, root, depth + 1); types != 0) return types;
    }
  }
  return 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The type of a JSON text; 0 where it is none.
uint8_t type_of_text(std::string_view text) {
  try {
    return type_of(*files::parse_json_text(text, {.depth = 64}));
  } catch (const files::JsonFault&) {
    return 0;
  }
}

}  // namespace

const Json* find_reference(std::string_view reference, const Json& root) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (!reference.empty() && at != nullptr) {
    if (reference.front() != '/') return nullptr;
    reference.remove_prefix(1);
    const std::string_view key = reference.substr(0, reference.find('/'));
    at = find_member(*at, key);
    reference.remove_prefix(key.size());
  }
  return at;
}

uint8_t types_of_schema(const Json& schema, const Json& root) {
  return types_within(schema, root, 0);
}

ToolTypes::ToolTypes(const JsonValue& tools) {
  const files::JsonTree tree = tools.tree("tools");
  if (!tree->is_array()) return;
  for (const Json& tool : tree->get_array()) {
    const Json* function = find_member(tool, "function");
    const Json* name = function == nullptr ? nullptr : find_member(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    names_.emplace_back(text_of(*name));
    auto& types = types_[names_.back()];
    const Json* schema = find_member(*function, "parameters");
    const Json* properties = schema == nullptr ? nullptr : find_member(*schema, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, value] : properties->get_object()) {
      types[std::string(key)] = types_of_schema(value, *schema);
    }
  }
}

uint8_t ToolTypes::types_of(std::string_view tool, std::string_view parameter) const {
  const auto found = types_.find(tool);
  if (found == types_.end()) return 0;
  const auto type = found->second.find(parameter);
  return type == found->second.end() ? uint8_t{0} : type->second;
}

std::string json_of_argument(std::string_view text, uint8_t types) {
  if (types == kStringType) return escaped_string(text);
  const uint8_t others = types == 0 ? 0xff : static_cast<uint8_t>(types & ~kStringType);
  const std::string_view value = trimmed(text);
  const uint8_t type = type_of_text(value);
  if (type != kStringType && (type & others) != 0) return std::string(value);
  if (type == 0) {
    if (std::optional<std::string> json = json_of_python(value)) {
      const uint8_t as = type_of_text(*json);
      if (as != kStringType && (as & others) != 0) return *json;
    }
  }
  return escaped_string(text);
}

}  // namespace heddle::answers
