#include "engine/rules/schema/schema_types.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "files/edit_distance.h"
#include "files/json_value.h"

namespace heddle::grammar {
namespace {

struct NamedType {
  std::string_view name;
  uint32_t types;
};
constexpr NamedType kTypes[] = {{"null", kNullType},       {"boolean", kBooleanType},
                                {"integer", kIntegerType}, {"number", kNumberType},
                                {"string", kStringType},   {"array", kArrayType},
                                {"object", kObjectType}};

struct KnownKeyword {
  std::string_view name;
  KeywordKind kind;
};
using enum KeywordKind;
constexpr KnownKeyword kKeywords[] = {{"type", kGeneral},
                                      {"enum", kGeneral},
                                      {"const", kGeneral},
                                      {"$ref", kGeneral},
                                      {"anyOf", kGeneral},
                                      {"oneOf", kGeneral},
                                      {"allOf", kGeneral},
                                      {"nullable", kGeneral},
                                      {"$id", kGeneral},
                                      {"minimum", kNumber},
                                      {"maximum", kNumber},
                                      {"exclusiveMinimum", kNumber},
                                      {"exclusiveMaximum", kNumber},
                                      {"multipleOf", kNumber},
                                      {"minLength", kString},
                                      {"maxLength", kString},
                                      {"pattern", kString},
                                      {"format", kString},
                                      {"items", kArray},
                                      {"prefixItems", kArray},
                                      {"minItems", kArray},
                                      {"maxItems", kArray},
                                      {"uniqueItems", kArray},
                                      {"unevaluatedItems", kArray},
                                      {"properties", kObject},
                                      {"required", kObject},
                                      {"additionalProperties", kObject},
                                      {"patternProperties", kObject},
                                      {"propertyNames", kObject},
                                      {"minProperties", kObject},
                                      {"maxProperties", kObject},
                                      {"unevaluatedProperties", kObject},
                                      {"title", kAnnotation},
                                      {"description", kAnnotation},
                                      {"default", kAnnotation},
                                      {"example", kAnnotation},
                                      {"examples", kAnnotation},
                                      {"deprecated", kAnnotation},
                                      {"readOnly", kAnnotation},
                                      {"writeOnly", kAnnotation},
                                      {"$comment", kAnnotation},
                                      {"$schema", kAnnotation},
                                      {"$defs", kAnnotation},
                                      {"definitions", kAnnotation},
                                      {"discriminator", kAnnotation},
                                      {"contentEncoding", kAnnotation},
                                      {"contentMediaType", kAnnotation},
                                      {"contentSchema", kAnnotation},
                                      {"externalDocs", kAnnotation},
                                      {"not", kUnsupported},
                                      {"if", kUnsupported},
                                      {"then", kUnsupported},
                                      {"else", kUnsupported},
                                      {"dependentRequired", kUnsupported},
                                      {"dependentSchemas", kUnsupported},
                                      {"dependencies", kUnsupported},
                                      {"contains", kUnsupported},
                                      {"minContains", kUnsupported},
                                      {"maxContains", kUnsupported},
                                      {"additionalItems", kUnsupported},
                                      {"$anchor", kUnsupported},
                                      {"$dynamicRef", kUnsupported},
                                      {"$dynamicAnchor", kUnsupported},
                                      {"$recursiveRef", kUnsupported},
                                      {"$recursiveAnchor", kUnsupported},
                                      {"$vocabulary", kUnsupported}};

constexpr size_t kLongestKeyword = 24;

}  // namespace

std::optional<uint32_t> type_named(std::string_view name) {
  const auto* const type = std::ranges::find(kTypes, name, &NamedType::name);
  return type == std::end(kTypes) ? std::nullopt : std::optional(type->types);
}

uint32_t types_in(const files::Json& type) {
  const auto named = [](const files::Json& name) {
    return name.is_string() ? type_named(files::text_of(name)).value_or(kAllTypes) : kAllTypes;
  };
  if (!type.is_array()) return named(type);
  uint32_t types = 0;
  for (const files::Json& name : type.get_array()) types |= named(name);
  return types;
}

uint32_t type_of(const files::Json& value) {
  if (value.is_bool()) return kBooleanType;
  if (value.is_string()) return kStringType;
  if (value.is_array()) return kArrayType;
  if (value.is_object()) return kObjectType;
  if (!value.is_number()) return kNullType;
  const double number = files::number_of(value);
  return files::is_integer(value) || number == std::floor(number) ? kIntegerType : kFractionType;
}

KeywordKind keyword_kind(std::string_view keyword) {
  if (keyword.starts_with("x-")) return kAnnotation;
  const auto* const known = std::ranges::find(kKeywords, keyword, &KnownKeyword::name);
  return known == std::end(kKeywords) ? kUnknown : known->kind;
}

std::string_view similar_keyword(std::string_view keyword) {
  if (keyword.size() > kLongestKeyword) return {};
  const auto distance = [keyword](const KnownKeyword& known) {
    return files::edit_distance(keyword, known.name);
  };
  const auto* const best = std::ranges::min_element(kKeywords, {}, distance);
  return distance(*best) <= std::min<size_t>(2, keyword.size() / 3) ? best->name
                                                                    : std::string_view();
}

}  // namespace heddle::grammar
