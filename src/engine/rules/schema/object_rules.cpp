// Objects of JSON by their schemas.
#include <algorithm>
#include <set>
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

/// The member, if the schema has it and it is not empty; an object of schemas.
const JsonObject* schemas_in(const JsonObject& schema, const SchemaPlace& place,
                             std::string_view keyword) {
  const Json* const given = schema.if_contains(keyword);
  if (given == nullptr) return nullptr;
  if (!given->is_object()) refuse(place.at(keyword), "no object of schemas");
  return given->get_object().empty() ? nullptr : &given->get_object();
}

/// Names are free, and nothing is said of their values.
bool is_open(const JsonObject& schema) {
  if (const Json* const additional = schema.if_contains("additionalProperties")) {
    return !files::is_bool(*additional, false);
  }
  const Json* const rest = schema.if_contains("unevaluatedProperties");
  return !schema.contains("properties") && (rest == nullptr || files::is_bool(*rest, true));
}

}  // namespace

GrammarRules::Rule SchemaRules::object(const JsonObject& schema, const SchemaPlace& place) {
  const Json* const unevaluated = schema.if_contains("unevaluatedProperties");
  if (unevaluated != nullptr && !unevaluated->is_bool()) {
    refuse(place.at("unevaluatedProperties"), "not supported but as true or false");
  }
  ObjectPlan plan{.is_open = is_open(schema)};
  add_properties(plan, schema, place);
  if (schemas_in(schema, place, "patternProperties") != nullptr) {
    add_pattern(plan, schema, place);
  } else if (const Json* const names = schema.if_contains("propertyNames")) {
    add_names(plan, *names, schema, place);
  }
  add_required(plan, schema, place);
  if (plan.is_open) add_others(plan, schema, place);
  count_properties(plan, schema, place);
  return rules_.make({{literal("{") + " ws", members(plan)}});
}

void SchemaRules::add_properties(ObjectPlan& plan, const JsonObject& schema,
                                 const SchemaPlace& place) {
  const JsonObject* const given = schemas_in(schema, place, "properties");
  if (given == nullptr) return;
  const SchemaPlace here = place.at("properties");
  for (const auto& member : *given) {
    const std::string_view name = member.key();
    plan.properties.push_back({.name = name,
                               .is_required = false,
                               .value = value(member.value(), here.at(name), kAllTypes)});
  }
}

void SchemaRules::add_pattern(ObjectPlan& plan, const JsonObject& schema,
                              const SchemaPlace& place) {
  const SchemaPlace here = place.at("patternProperties");
  const JsonObject& patterns = schema.at("patternProperties").get_object();
  for (const char* const other : {"properties", "propertyNames"}) {
    if (schemas_in(schema, place, other) == nullptr) continue;
    refuse(here, std::string("not supported together with \"") + other + '"');
  }
  if (patterns.size() > 1) refuse(here, "not supported with more than one pattern");
  const auto& [pattern, of_pattern] = *patterns.begin();
  const SchemaPlace at_pattern = here.at(pattern);
  JsonObject& names = merged_.emplace_back(JsonObject{{"pattern", pattern}}).get_object();
  plan.other_name = string(names, at_pattern);
  plan.other_value = value(of_pattern, at_pattern, kAllTypes);
  plan.is_open = false;  // others are not written, be they allowed
}

/// Names that a schema describes: listed ones are properties that may be left out.
void SchemaRules::add_names(ObjectPlan& plan, const Json& names, const JsonObject& schema,
                            const SchemaPlace& place) {
  const SchemaPlace here = place.at("propertyNames");
  const Json* const resolved = resolve(document_, names);
  if (resolved == nullptr) refuse(here, "not supported: its $ref leads nowhere");
  if (files::is_bool(*resolved, true)) return;
  if (!resolved->is_object()) refuse(here, "not supported but as an object or true");
  const JsonObject& of_names = resolved->get_object();
  check_keywords(of_names, here);
  if ((types_of(of_names, here) & kStringType) == 0) refuse(here, "not of type string");
  const bool says_nothing = std::ranges::all_of(of_names, [](const auto& member) {
    return member.key() == "type" || keyword_kind(member.key()) == KeywordKind::kAnnotation;
  });
  if (says_nothing) return;
  if (!plan.properties.empty()) refuse(here, "not supported together with \"properties\"");
  if (!plan.is_open) return;  // {} alone
  const Json* const listed = of_names.if_contains("enum");
  const Json* const only = of_names.if_contains("const");
  if (listed == nullptr && only == nullptr) {
    for (const auto& member : of_names) {
      const KeywordKind kind = keyword_kind(member.key());
      if (kind == KeywordKind::kGeneral && member.key() != "type") {
        refuse(here.at(member.key()), "not supported");
      }
    }
    plan.other_name = string(of_names, here);
    return;
  }
  check_alone(of_names, here, only != nullptr ? "const" : "enum");
  if (only == nullptr && !listed->is_array()) refuse(here.at("enum"), "no array");
  plan.is_open = false;
  const Rule value = additional(schema, place);
  std::set<std::string_view> seen;
  const auto add = [&](const Json& name) {
    if (!name.is_string() || !seen.insert(files::text_of(name)).second) return;
    plan.properties.push_back({.name = files::text_of(name), .is_required = false, .value = value});
  };
  if (only != nullptr) {
    add(*only);
  } else {
    for (const Json& name : listed->get_array()) add(name);
  }
}

void SchemaRules::add_required(ObjectPlan& plan, const JsonObject& schema,
                               const SchemaPlace& place) {
  const Json* const given = schema.if_contains("required");
  if (given == nullptr) return;
  const SchemaPlace here = place.at("required");
  if (!given->is_array()) refuse(here, "no array of names");
  std::map<std::string_view, size_t> known;
  for (size_t i = 0; i < plan.properties.size(); ++i) known.emplace(plan.properties[i].name, i);
  for (const Json& name : given->get_array()) {
    if (!name.is_string()) refuse(here, "not of names alone");
    const std::string_view text = files::text_of(name);
    const auto [place_of_name, is_new] = known.emplace(text, plan.properties.size());
    if (is_new) {
      if (!plan.is_open || !plan.other_name.empty()) {
        refuse(here,
               "not supported with " + files::quote(text) + ", which is none of the properties");
      }
      plan.properties.push_back(
          {.name = text, .is_required = true, .value = additional(schema, place)});
    }
    plan.properties[place_of_name->second].is_required = true;
  }
}

/// The rule of values whose names are free.
GrammarRules::Rule SchemaRules::additional(const JsonObject& schema, const SchemaPlace& place) {
  const Json* const given = schema.if_contains("additionalProperties");
  if (given == nullptr) return any_value(kAllTypes);
  return value(*given, place.at("additionalProperties"), kAllTypes);
}

void SchemaRules::add_others(ObjectPlan& plan, const JsonObject& schema, const SchemaPlace& place) {
  plan.other_value = additional(schema, place);
  if (!plan.other_name.empty()) return;
  if (plan.properties.empty()) {
    plan.other_name = {"string"};
    return;
  }
  std::vector<std::string> names;
  for (const auto& property : plan.properties) names.emplace_back(property.name);
  plan.other_name = {literal("\""), texts_.rest_of_other_names(names)};
}

void SchemaRules::count_properties(ObjectPlan& plan, const JsonObject& schema,
                                   const SchemaPlace& place) {
  plan.min = count_of(schema, place, "minProperties", 0);
  plan.max = count_of(schema, place, "maxProperties", TextPattern::kNoEnd);
  if (plan.min > plan.max) refuse(place.at("minProperties"), "above maxProperties");
  const int64_t num_required = std::ranges::count_if(
      plan.properties, [](const auto& property) { return property.is_required; });
  if (num_required > plan.max)
    refuse(place.at("maxProperties"), "below the number of required ones");
  const bool has_others = !plan.other_name.empty();
  if (!has_others && plan.min > std::ssize(plan.properties)) {
    refuse(place.at("minProperties"), "above the number of properties");
  }
  // A name may come twice, and counts once.
  if (has_others && plan.min > std::max<int64_t>(num_required, 1)) {
    refuse(place.at("minProperties"),
           "not supported above 1, or the number of required properties, where names are free");
  }
}

/// What follows the brace: a rule for each property and number of those that were written before.
GrammarRules::Rule SchemaRules::members(const ObjectPlan& plan) {
  const bool has_others = !plan.other_name.empty();
  const auto num_named = std::ssize(plan.properties);
  const bool has_max = plan.max != TextPattern::kNoEnd && (has_others || plan.max < num_named);
  // From `cap` on counts make no difference.
  const int64_t cap = std::max<int64_t>({1, plan.min, has_max ? plan.max + 1 : 0});
  const std::string end = literal("}"), comma = literal(",") + " ws";
  const std::string colon = std::string("ws ") + literal(":") + " ws";
  const auto num_counts = static_cast<size_t>(cap + 1);
  std::vector<Rule> next;  // by count
  for (size_t count = 0; count < num_counts; ++count) next.push_back(rules_.make());
  const auto may_add = [&](size_t count) {
    return !has_max || static_cast<int64_t>(count) < plan.max;
  };
  for (size_t count = 0; count < num_counts; ++count) {
    const bool is_in_range = static_cast<int64_t>(count) >= plan.min &&
                             (!has_max || static_cast<int64_t>(count) <= plan.max);
    if (is_in_range) rules_.add(next[count], {end});
    if (!has_others || !may_add(count)) continue;
    Sequence member;
    if (count > 0) member.emplace_back(comma);
    member.insert(member.end(), plan.other_name.begin(), plan.other_name.end());
    member.emplace_back(colon);
    member.emplace_back(plan.other_value);
    member.emplace_back("ws");
    member.emplace_back(next[std::min(count + 1, num_counts - 1)]);
    rules_.add(next[count], std::move(member));
  }
  for (auto property = plan.properties.rbegin(); property != plan.properties.rend(); ++property) {
    std::vector<Rule> rules;
    const std::string name = literal(files::json_string(property->name)) + ' ' + colon;
    for (size_t count = 0; count < num_counts; ++count) {
      const Rule rule = rules_.make();
      if (may_add(count)) {
        rules_.add(rule, {count > 0 ? comma + ' ' + name : name, property->value, "ws",
                          next[std::min(count + 1, num_counts - 1)]});
      }
      if (!property->is_required) rules_.add(rule, {next[count]});
      rules.push_back(rule);
    }
    next = std::move(rules);
  }
  return next.front();
}

}  // namespace heddle::grammar
