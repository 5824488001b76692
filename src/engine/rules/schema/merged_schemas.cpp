// allOf: several schemas as one that has the keywords of all.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/rules/schema/schema_rules.h"
#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::grammar {
namespace {

using files::Json;
using files::JsonObject;

constexpr int kMaxSteps = 32;           // of references and allOf in one another
constexpr size_t kMaxCopied = 300'000;  // values that are copied

size_t num_values(const Json& value) {
  size_t count = 1;
  if (const auto* const array = value.if_array()) {
    for (const Json& element : *array) count += num_values(element);
  } else if (const auto* const object = value.if_object()) {
    for (const auto& member : *object) count += num_values(member.value());
  }
  return count;
}

/// Keywords that say something of what other keywords of their schema do not name.
constexpr std::string_view kOfOthers[] = {"additionalProperties", "patternProperties",
                                          "unevaluatedProperties"};
constexpr std::string_view kOfElements[] = {"items", "prefixItems", "unevaluatedItems"};

template <size_t n>
bool has_any(const JsonObject& schema, const std::string_view (&keywords)[n]) {
  return std::ranges::any_of(keywords, [&](std::string_view keyword) {
    const Json* const value = schema.if_contains(keyword);
    return value != nullptr && !files::is_bool(*value, true);
  });
}

void merge_types(Json& known, const Json& value) {
  const uint32_t types = types_in(known) & types_in(value);
  files::JsonArray names;
  for (const char* const name : {"null", "boolean", "string", "array", "object"}) {
    if ((types & *type_named(name)) != 0) names.emplace_back(name);
  }
  if ((types & kIntegerType) != 0) {
    names.emplace_back((types & kFractionType) != 0 ? "number" : "integer");
  }
  known = std::move(names);
}

}  // namespace

struct SchemaRules::Merge {
  JsonObject schema{};
  std::vector<const JsonObject*> closed{};  // members that say something of other properties
};

GrammarRules::Rule SchemaRules::all_of(const JsonObject& schema, const SchemaPlace& place,
                                       uint32_t types) {
  Merge all;
  merge(all, schema, place, 0);
  if (const Json* const properties = all.schema.if_contains("properties")) {
    for (const JsonObject* const member : all.closed) {
      const Json* const own = member->if_contains("properties");
      for (const auto& property : properties->get_object()) {
        if (own != nullptr && files::find_member(*own, property.key()) != nullptr) continue;
        refuse(place.at("allOf"),
               "not supported where one of its schemas is closed and another "
               "one has a property more, here " +
                   files::quote(property.key()));
      }
    }
  }
  return new_value(merged_.emplace_back(std::move(all.schema)), place, types);
}

void SchemaRules::merge_member(Merge& all, const Json& member, const SchemaPlace& place,
                               int depth) {
  if (files::is_bool(member, true)) return;
  if (!member.is_object()) refuse(place.at("allOf"), "not supported but of objects and true");
  merge(all, member.get_object(), place, depth);
}

void SchemaRules::merge(Merge& all, const JsonObject& schema, const SchemaPlace& place, int depth) {
  const SchemaPlace here = place.at("allOf");
  if (depth > kMaxSteps) refuse(here, "not supported: it leads back to itself, or is too deep");
  if (++num_merged_ > kMaxCopied) refuse(here, "too complex");
  check_keywords(schema, place);
  (void)types_of(schema, place);
  const bool is_closed = has_any(schema, kOfOthers);
  if (is_closed) all.closed.push_back(&schema);
  if (has_any(schema, kOfElements) && has_any(all.schema, kOfElements)) {
    refuse(here, "not supported where two of its schemas have items");
  }
  for (const auto& each : schema) {
    const std::string_view keyword = each.key();
    if (keyword_kind(keyword) == KeywordKind::kAnnotation || keyword == "$id") continue;
    if (keyword == "$ref") {
      const Json* const target = each.value().is_string()
                                     ? find_reference(document_, files::text_of(each.value()))
                                     : nullptr;
      if (target == nullptr) refuse(here, "not supported: a $ref in it leads nowhere");
      merge_member(all, *target, place, depth + 1);
    } else if (keyword == "allOf") {
      if (!each.value().is_array() || each.value().get_array().empty()) {
        refuse(here, "no array of schemas, of which there must be one");
      }
      for (const Json& one : each.value().get_array()) merge_member(all, one, place, depth + 1);
    } else {
      merge_keyword(all, keyword, each.value(), place);
    }
  }
}

void SchemaRules::merge_keyword(Merge& all, std::string_view keyword, const Json& value,
                                const SchemaPlace& place) {
  num_merged_ += num_values(value);
  if (num_merged_ > kMaxCopied) refuse(place.at("allOf"), "too complex");
  Json* const known = all.schema.if_contains(keyword);
  if (known == nullptr) {
    all.schema.emplace(keyword, value);
  } else if (*known == value) {
  } else if (keyword == "type") {
    merge_types(*known, value);
  } else if (keyword == "required" && known->is_array() && value.is_array()) {
    for (const Json& name : value.get_array()) known->get_array().push_back(name);
  } else if (keyword == "properties" && known->is_object() && value.is_object()) {
    for (const auto& property : value.get_object()) {
      Json& own = known->get_object()[property.key()];
      if (own.is_null()) {
        own = property.value();
      } else if (own != property.value()) {
        own = JsonObject{{"allOf", files::JsonArray{own, property.value()}}};
      }
    }
  } else {
    refuse(place.at("allOf"), "not supported with two different \"" + std::string(keyword) + '"');
  }
}

}  // namespace heddle::grammar
