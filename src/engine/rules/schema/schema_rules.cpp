#include "engine/rules/schema/schema_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::grammar {
namespace {

constexpr int kMaxSchemaDepth = 300;  // of schemas in one another, also by allOf
constexpr size_t kMaxApart = 200;     // members of oneOf, each of which is compared with each

bool has_huge_number(const files::Json& value) {
  if (value.is_double()) return !(std::abs(value.get_double()) < 0x1p63);
  if (const auto* const array = value.if_array()) {
    return std::ranges::any_of(*array, has_huge_number);
  }
  const auto* const object = value.if_object();
  return object != nullptr && std::ranges::any_of(*object, [](const auto& member) {
           return has_huge_number(member.value());
         });
}

/// EBNF of a value, with blanks where an answer may have them.
void append_value(std::string& text, const files::Json& value) {
  const auto append_text = [&text](std::string_view part) { text += literal(part) + " ws "; };
  if (const auto* const array = value.if_array()) {
    append_text("[");
    for (size_t i = 0; i < array->size(); ++i) {
      if (i > 0) append_text(",");
      append_value(text, (*array)[i]);
      text += " ws ";
    }
    text += literal("]");
  } else if (const auto* const object = value.if_object()) {
    append_text("{");
    bool is_first = true;
    for (const auto& member : *object) {
      if (!is_first) append_text(",");
      is_first = false;
      append_text(files::json_string(member.key()));
      append_text(":");
      append_value(text, member.value());
      text += " ws ";
    }
    text += literal("}");
  } else {
    text += literal(files::json_text(value));
  }
}

/// The types of a schema without "type" whose keywords are those of objects or arrays.
uint32_t implied_types(const files::JsonObject& schema) {
  uint32_t types = 0;
  for (const char* const keyword : {"properties", "additionalProperties", "patternProperties"}) {
    if (schema.contains(keyword)) types |= kObjectType;
  }
  for (const char* const keyword : {"items", "prefixItems"}) {
    if (schema.contains(keyword)) types |= kArrayType;
  }
  return types;
}

uint32_t types_of_kind(KeywordKind kind) {
  switch (kind) {
    case KeywordKind::kNumber: return kNumberType;
    case KeywordKind::kString: return kStringType;
    case KeywordKind::kArray: return kArrayType;
    case KeywordKind::kObject: return kObjectType;
    default: return 0;
  }
}

std::string quoted(std::string_view text) { return '"' + files::printable(text, 60) + '"'; }

}  // namespace

std::string SchemaRules::text() {
  const Rule root = refer(document_, "#", kAllTypes);
  while (!referred_.empty()) {
    const Referred next = referred_.front();
    referred_.pop_front();
    rules_.add(next.rule, {new_value(*next.schema, SchemaPlace(next.reference), next.types)});
  }
  for (const Rule rule : rules_.find_circle()) {
    const auto place = places_.find(rule);
    HEDDLE_CHECK(place == places_.end(), "the schema's ", place->second,
                 " is not supported: its $ref leads back to it with nothing in between");
  }
  const std::vector<bool> is_finite = rules_.find_finite();
  if (!is_finite[static_cast<size_t>(root)]) {
    std::string place = "#";
    std::vector<bool> is_seen(is_finite.size());
    for (Rule rule = root; rule >= 0 && !is_seen[static_cast<size_t>(rule)];
         rule = rules_.find_endless(rule, is_finite)) {
      is_seen[static_cast<size_t>(rule)] = true;
      if (const auto known = places_.find(rule); known != places_.end()) place = known->second;
    }
    throw_error(ErrorCode::kInvalidArgument, "the schema's ", place,
                " allows no value that ends, and no answer can do without it");
  }
  return rules_.text(root) + common_rules();
}

GrammarRules::Rule SchemaRules::none(const SchemaPlace& place) {
  const Rule rule = rules_.make();
  places_.emplace(rule, place.text());
  return rule;
}

GrammarRules::Rule SchemaRules::value(const Json& schema, const SchemaPlace& place,
                                      uint32_t types) {
  const auto known = made_.find({&schema, types});
  if (known != made_.end()) return known->second;
  const Rule rule = new_value(schema, place, types);
  made_.emplace(std::pair(&schema, types), rule);
  return rule;
}

GrammarRules::Rule SchemaRules::new_value(const Json& schema, const SchemaPlace& place,
                                          uint32_t types) {
  if (schema.is_bool()) return schema.get_bool() ? any_value(types) : none(place);
  if (!schema.is_object()) {
    refuse(place,
           std::string(files::json_kind(schema)) + ", expected a schema: an object, true or false");
  }
  if (depth_ == kMaxSchemaDepth) refuse(place, "nested too deeply");
  ++depth_;  // not taken back by an error, which ends it all
  const JsonObject& object = schema.get_object();
  check_keywords(object, place);
  types &= types_of(object, place);
  Rule rule = -1;
  if (types == 0) {
    rule = none(place);
  } else if (object.contains("allOf")) {
    rule = all_of(object, place, types);
  } else if (object.contains("$ref")) {
    rule = reference(object, place, types);
  } else if (object.contains("const") || object.contains("enum")) {
    rule = values_of(object, place, types);
  } else if (object.contains("anyOf")) {
    rule = any_of(object, place, "anyOf", types);
  } else if (object.contains("oneOf")) {
    rule = any_of(object, place, "oneOf", types);
  } else {
    rule = typed(object, place, types);
  }
  --depth_;
  return rule;
}

GrammarRules::Rule SchemaRules::any_value(uint32_t types) {
  if (types == kAllTypes) return rules_.make({{"value"}});
  const Rule rule = rules_.make();
  if ((types & kNullType) != 0) rules_.add(rule, {literal("null")});
  if ((types & kBooleanType) != 0) rules_.add(rule, {"boolean"});
  if ((types & kNumberType) == kIntegerType) rules_.add(rule, {"integer"});
  if ((types & kFractionType) != 0) rules_.add(rule, {"number"});
  if ((types & kStringType) != 0) rules_.add(rule, {"string"});
  if ((types & kArrayType) != 0) rules_.add(rule, {"array"});
  if ((types & kObjectType) != 0) rules_.add(rule, {"object"});
  return rule;
}

GrammarRules::Rule SchemaRules::typed(const JsonObject& schema, const SchemaPlace& place,
                                      uint32_t types) {
  uint32_t given = 0;  // the types of which keywords say something
  if (types == kAllTypes) types = implied_types(schema);
  if (types == 0) types = kAllTypes;
  for (const auto& member : schema) {
    const uint32_t of_keyword = types_of_kind(keyword_kind(member.key())) & types;
    if (of_keyword != 0 && types == kAllTypes) {
      refuse(place.at(member.key()), "not supported without \"type\"");
    }
    given |= of_keyword;
  }
  const uint32_t rest = types & ~given;
  const Rule rule = rules_.make();
  if (rest != 0) rules_.add(rule, {any_value(rest)});
  if ((given & kNumberType) != 0) {
    if (schema.contains("multipleOf")) {
      rules_.add(rule, {multiples(schema, place)});
    } else {
      rules_.add(rule, {number(schema, place, given & kNumberType)});
    }
  }
  if ((given & kStringType) != 0) rules_.add(rule, string(schema, place));
  if ((given & kArrayType) != 0) rules_.add(rule, {array(schema, place)});
  if ((given & kObjectType) != 0) rules_.add(rule, {object(schema, place)});
  return rule;
}

/// The rule of a schema that is made later: so that schemas may hold themselves.
GrammarRules::Rule SchemaRules::refer(const Json& schema, std::string_view reference,
                                      uint32_t types) {
  const auto [place, is_new] = made_.emplace(std::pair(&schema, types), -1);
  if (!is_new) return place->second;
  place->second = rules_.make();
  places_.emplace(place->second, SchemaPlace(reference).text());
  referred_.push_back({&schema, reference, types, place->second});
  return place->second;
}

GrammarRules::Rule SchemaRules::reference(const JsonObject& schema, const SchemaPlace& place,
                                          uint32_t types) {
  check_alone(schema, place, "$ref");
  const SchemaPlace here = place.at("$ref");
  const Json& reference = schema.at("$ref");
  if (!reference.is_string()) refuse(here, "no string");
  const std::string_view target = files::text_of(reference);
  const Json* const found = find_reference(document_, target);
  if (found == nullptr) {
    refuse(here, quoted(target) +
                     ", which names no part of the schema: expected "
                     "\"#\" or \"#/...\", as in \"#/$defs/name\"");
  }
  return refer(*found, target, types);
}

GrammarRules::Rule SchemaRules::values_of(const JsonObject& schema, const SchemaPlace& place,
                                          uint32_t types) {
  const bool is_enum = !schema.contains("const");
  const std::string_view keyword = is_enum ? "enum" : "const";
  check_alone(schema, place, keyword);
  const Json& given = schema.at(keyword);
  if (is_enum && (!given.is_array() || given.get_array().empty())) {
    refuse(place.at(keyword), "no array of values, of which there must be one");
  }
  const Rule rule = rules_.make();
  bool has_value = false;
  const auto add = [&](const Json& value) {
    if ((type_of(value) & types) == 0) return;
    if (has_huge_number(value)) {
      refuse(place.at(keyword), "not supported with numbers that 64 bits do not hold");
    }
    std::string text;
    append_value(text, value);
    rules_.add(rule, {std::move(text)});
    has_value = true;
  };
  if (is_enum) {
    for (const Json& value : given.get_array()) add(value);
  } else {
    add(given);
  }
  if (!has_value) refuse(place.at(keyword), "without a value of the type that it must have");
  return rule;
}

GrammarRules::Rule SchemaRules::any_of(const JsonObject& schema, const SchemaPlace& place,
                                       std::string_view keyword, uint32_t types) {
  check_alone(schema, place, keyword);
  const SchemaPlace here = place.at(keyword);
  const Json& given = schema.at(keyword);
  if (!given.is_array() || given.get_array().empty()) {
    refuse(here, "no array of schemas, of which there must be one");
  }
  const auto& members = given.get_array();
  const Rule rule = rules_.make();
  for (size_t i = 0; i < members.size(); ++i) {
    rules_.add(rule, {value(members[i], here.at(i), types)});
  }
  if (keyword == "anyOf") return rule;
  if (members.size() > kMaxApart) refuse(here, "not supported with so many schemas");
  if (const auto overlap = find_overlap(document_, members)) {
    refuse(here, "not supported where a value may fit two of its schemas, here " +
                     std::to_string(overlap->first) + " and " + std::to_string(overlap->second) +
                     ": say anyOf, or give them a required property with another const each");
  }
  return rule;
}

void SchemaRules::check_keywords(const JsonObject& schema, const SchemaPlace& place) {
  for (const auto& member : schema) {
    const std::string_view keyword = member.key();
    const KeywordKind kind = keyword_kind(keyword);
    if (kind == KeywordKind::kUnsupported) refuse(place.at(keyword), "not supported");
    if (kind == KeywordKind::kUnknown) {
      const std::string_view similar = similar_keyword(keyword);
      refuse(place.at(keyword), "no keyword that is supported" +
                                    (similar.empty() ? "" : "; is it " + quoted(similar) + "?"));
    }
    if (keyword == "$id" && &schema != document_.if_object()) {
      refuse(place.at(keyword), "not supported but in the whole schema");
    }
    if (keyword == "nullable" && !files::is_bool(member.value(), false)) {
      refuse(place.at(keyword), "not supported: say \"type\": [\"string\", \"null\"]");
    }
  }
}

/// That no other keyword says something, too.
void SchemaRules::check_alone(const JsonObject& schema, const SchemaPlace& place,
                              std::string_view keyword) {
  for (const auto& member : schema) {
    const std::string_view other = member.key();
    const bool is_free = other == keyword || other == "type" || other == "nullable" ||
                         other == "$id" || keyword_kind(other) == KeywordKind::kAnnotation;
    if (!is_free) refuse(place.at(keyword), "not supported together with " + quoted(other));
  }
}

uint32_t SchemaRules::types_of(const JsonObject& schema, const SchemaPlace& place) {
  const Json* const type = schema.if_contains("type");
  if (type == nullptr) return kAllTypes;
  const SchemaPlace here = place.at("type");
  const auto types_named = [&here](const Json& name) {
    const auto types = name.is_string() ? type_named(files::text_of(name)) : std::nullopt;
    if (!types) {
      refuse(here, files::printable(files::json_text(name), 60) +
                       ", expected null, boolean, integer, number, string, array or object");
    }
    return *types;
  };
  if (!type->is_array()) return types_named(*type);
  if (type->get_array().empty()) refuse(here, "without a type");
  uint32_t types = 0;
  for (const Json& name : type->get_array()) types |= types_named(name);
  return types;
}

int64_t count_of(const files::JsonObject& schema, const SchemaPlace& place,
                 std::string_view keyword, int64_t otherwise) {
  constexpr int64_t kMax = 1'000'000'000;
  const files::Json* const value = schema.if_contains(keyword);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? files::number_of(*value) : -1;
  if (!(number >= 0) || number != std::floor(number)) {
    refuse(place.at(keyword), files::printable(files::json_text(*value), 60) +
                                  ", expected an integer that is at least 0");
  }
  return number > static_cast<double>(kMax) ? kMax : static_cast<int64_t>(number);
}

const files::Json* resolve(const files::Json& document, const files::Json& schema) {
  constexpr int kMaxSteps = 32;
  const files::Json* result = &schema;
  for (int i = 0; i < kMaxSteps && result != nullptr; ++i) {
    const files::Json* const reference = files::find_member(*result, "$ref");
    if (reference == nullptr) return result;
    result =
        reference->is_string() ? find_reference(document, files::text_of(*reference)) : nullptr;
  }
  return nullptr;
}

}  // namespace heddle::grammar
