// Whether a value may fit two schemas.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rules/schema/schema_rules.h"
#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::grammar {
namespace {

using files::Json;
using files::JsonObject;

/// What is known of a schema's values.
struct Shape {
  uint32_t types = kAllTypes;
  std::optional<std::set<std::string>> values{};  // all that there are
  const JsonObject* object = nullptr;             // where it describes objects itself
};

std::string canonical(const Json& value) {
  return value.is_number() ? files::json_text(files::number_of(value)) : files::json_text(value);
}

bool has_containers(const Json& values) {
  return files::is_container(values) &&
         std::ranges::any_of(values.get_array(), files::is_container);
}

Shape shape_of(const Json& document, const Json& schema, int depth) {
  constexpr int kMaxSteps = 8;
  Shape shape;
  const Json* const resolved = resolve(document, schema);
  if (resolved == nullptr || !resolved->is_object() || depth > kMaxSteps) return shape;
  const JsonObject& object = resolved->get_object();
  if (const Json* const type = object.if_contains("type")) shape.types = types_in(*type);
  if (object.contains("allOf")) return shape;
  const Json* const only = object.if_contains("const");
  const Json* const listed = object.if_contains("enum");
  if (only != nullptr || (listed != nullptr && listed->is_array())) {
    const files::JsonArray values = only != nullptr ? files::JsonArray{*only} : listed->get_array();
    uint32_t types = 0;
    for (const Json& value : values) types |= type_of(value);
    shape.types &= types;
    if (has_containers(Json(values))) return shape;
    shape.values.emplace();
    for (const Json& value : values) shape.values->insert(canonical(value));
    return shape;
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    const Json* const members = object.if_contains(keyword);
    if (members == nullptr || !members->is_array()) continue;
    uint32_t types = 0;
    for (const Json& member : members->get_array()) {
      types |= shape_of(document, member, depth + 1).types;
    }
    shape.types &= types;
    return shape;
  }
  const bool is_object = object.contains("properties") && !object.contains("type");
  if (is_object) shape.types &= kObjectType;
  shape.object = &object;
  return shape;
}

bool have_no_common(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::ranges::none_of(a, [&b](const std::string& value) { return b.contains(value); });
}

std::set<std::string_view> required_of(const JsonObject& object) {
  std::set<std::string_view> names;
  const Json* const required = object.if_contains("required");
  if (required == nullptr || !required->is_array()) return names;
  for (const Json& name : required->get_array()) {
    if (name.is_string()) names.insert(files::text_of(name));
  }
  return names;
}

const Json* property_of(const JsonObject& object, std::string_view name) {
  const Json* const properties = object.if_contains("properties");
  return properties == nullptr ? nullptr : files::find_member(*properties, name);
}

/// Answers have the named properties alone.
bool is_closed_in_answers(const JsonObject& object) {
  const Json* const additional = object.if_contains("additionalProperties");
  return object.contains("properties") && !object.contains("patternProperties") &&
         (additional == nullptr || files::is_bool(*additional, false));
}

/// Whether no answer to `a` fits `b`, since one must have a property that the other has not.
bool differ_in_names(const JsonObject& a, const JsonObject& b) {
  const auto needs_what_lacks = [](const JsonObject& one, const JsonObject& other) {
    return std::ranges::any_of(required_of(one), [&other](std::string_view name) {
      return property_of(other, name) == nullptr;
    });
  };
  const Json* const additional = b.if_contains("additionalProperties");
  const bool is_closed = additional != nullptr && files::is_bool(*additional, false) &&
                         !b.contains("patternProperties");
  return (is_closed_in_answers(a) && needs_what_lacks(b, a)) ||
         (is_closed && needs_what_lacks(a, b));
}

/// Whether it is known that no answer to one of two schemas fits the other one.
bool are_apart(const Json& document, const Shape& one, const Shape& other) {
  const uint32_t common = one.types & other.types;
  if (common == 0) return true;
  if (one.values && other.values) return have_no_common(*one.values, *other.values);
  if (common != kObjectType || one.object == nullptr || other.object == nullptr) return false;
  const std::set<std::string_view> required = required_of(*other.object);
  for (const std::string_view name : required_of(*one.object)) {
    if (!required.contains(name)) continue;
    const Json* const of_one = property_of(*one.object, name);
    const Json* const of_other = property_of(*other.object, name);
    if (of_one == nullptr || of_other == nullptr) continue;
    const Shape first = shape_of(document, *of_one, 0), second = shape_of(document, *of_other, 0);
    const bool have_values = first.values && second.values;
    if (have_values && have_no_common(*first.values, *second.values)) return true;
    if ((first.types & second.types) == 0) return true;
  }
  return differ_in_names(*one.object, *other.object) && differ_in_names(*other.object, *one.object);
}

}  // namespace

std::optional<std::pair<size_t, size_t>> find_overlap(const Json& document,
                                                      const files::JsonArray& schemas) {
  std::vector<Shape> shapes;
  for (const Json& schema : schemas) shapes.push_back(shape_of(document, schema, 0));
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!are_apart(document, shapes[j], shapes[i])) return std::pair(j, i);
    }
  }
  return std::nullopt;
}

}  // namespace heddle::grammar
