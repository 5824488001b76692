// Arrays of JSON by their schemas.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/rules/schema/schema_rules.h"
#include "files/json_value.h"

namespace heddle::grammar {
namespace {

constexpr int64_t kNoMaximum = TextPattern::kNoEnd;
/// Elements that are counted by a rule each; more are by the grammar library.
constexpr int64_t kMaxCounted = 256;

const files::Json kAnything(true);

}  // namespace

GrammarRules::Rule SchemaRules::array(const JsonObject& schema, const SchemaPlace& place) {
  const Json* const unique = schema.if_contains("uniqueItems");
  if (unique != nullptr && !files::is_bool(*unique, false)) {
    refuse(place.at("uniqueItems"), "not supported");
  }
  const Json* const unevaluated = schema.if_contains("unevaluatedItems");
  if (unevaluated != nullptr && !unevaluated->is_bool()) {
    refuse(place.at("unevaluatedItems"), "not supported but as true or false");
  }
  const int64_t min = count_of(schema, place, "minItems", 0);
  int64_t max = count_of(schema, place, "maxItems", kNoMaximum);
  if (min > max) refuse(place.at("minItems"), "above maxItems");
  std::vector<Rule> first;
  if (const Json* const given = schema.if_contains("prefixItems")) {
    const SchemaPlace here = place.at("prefixItems");
    if (!given->is_array()) refuse(here, "no array of schemas");
    for (size_t i = 0; i < given->get_array().size(); ++i) {
      first.push_back(value(given->get_array()[i], here.at(i), kAllTypes));
    }
  }
  const Json* items = schema.if_contains("items");
  const bool is_closed = !first.empty() || (unevaluated != nullptr && !unevaluated->get_bool());
  if (items == nullptr && !is_closed) items = &kAnything;
  Rule rest = -1;
  if (items == nullptr || files::is_bool(*items, false)) {
    max = std::min(max, std::ssize(first));
    if (min > max) refuse(place.at("minItems"), "above the number of elements that there may be");
  } else if (max > std::ssize(first)) {
    if (items->is_array()) refuse(place.at("items"), "an array: say prefixItems");
    rest = value(*items, place.at("items"), kAllTypes);
  }
  return rules_.make({{literal("[") + " ws", elements(first, rest, min, max)}});
}

/// What follows the bracket. `first`: the rules of the first elements, `rest` of all others.
GrammarRules::Rule SchemaRules::elements(const std::vector<Rule>& first, Rule rest, int64_t min,
                                         int64_t max) {
  const auto num_first = std::ssize(first);
  const std::string end = literal("]"), comma = literal(",") + " ws";
  const auto rule_at = [&](int64_t i) {
    return i < num_first ? first[static_cast<size_t>(i)] : rest;
  };
  // A rule for what follows i elements, the last first.
  const int64_t base = std::max<int64_t>(num_first, 1);
  int64_t count = std::max(base, max == kNoMaximum ? min : max);
  Rule next = -1;
  if (max <= base || count <= base + kMaxCounted) {
    count = std::min(count, max);
    next = rules_.make();
    if (count >= min) rules_.add(next, {end});
    if (max == kNoMaximum) rules_.add(next, {comma, rest, "ws", next});
  } else {
    const auto counted = [&](int64_t from, int64_t to) {
      return '{' + std::to_string(from) + ',' + (to == kNoMaximum ? "" : std::to_string(to)) + '}';
    };
    const Rule more = rules_.make({{comma, rest, "ws"}});
    count = base;
    const int64_t from = std::max<int64_t>(min - base, 1);
    next = rules_.make({{{more, counted(from, max == kNoMaximum ? max : max - base)}, end}});
    if (min <= base) rules_.add(next, {end});
  }
  for (int64_t i = count - 1; i >= 0; --i) {
    const Rule rule = rules_.make();
    if (i >= min) rules_.add(rule, {end});
    if (i == 0) {
      rules_.add(rule, {rule_at(i), "ws", next});
    } else {
      rules_.add(rule, {comma, rule_at(i), "ws", next});
    }
    next = rule;
  }
  return next;
}

}  // namespace heddle::grammar
