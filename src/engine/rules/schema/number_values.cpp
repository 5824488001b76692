// Numbers by their schemas.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/rules/schema/number_rules.h"
#include "engine/rules/schema/schema_rules.h"
#include "files/json_value.h"

namespace heddle::grammar {
namespace {

constexpr int64_t kUsualMax = 999'999'999'999'999'999;  // of an integer without bounds
constexpr size_t kMaxFraction = 6;                      // digits of a bound after the point
constexpr int64_t kMaxMultiple = 1000, kMaxListed = 10'000;
constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();

struct BoundKeyword {
  std::string_view name;
  bool is_low, is_open;
};
constexpr BoundKeyword kBounds[] = {{"minimum", true, false},
                                    {"exclusiveMinimum", true, true},
                                    {"maximum", false, false},
                                    {"exclusiveMaximum", false, true}};

/// Whether the value of the keyword is there; it is a number.
const files::Json* bound_in(const files::JsonObject& schema, const SchemaPlace& place,
                            std::string_view keyword) {
  const files::Json* const value = schema.if_contains(keyword);
  if (value != nullptr && !value->is_number()) {
    refuse(place.at(keyword), std::string(files::json_kind(*value)) + ", expected a number");
  }
  return value;
}

struct IntegerRange {
  std::optional<int64_t> low{}, high{};
};

/// The bound as an integer that is within the range.
int64_t integer_bound(const files::Json& value, const BoundKeyword& keyword,
                      const SchemaPlace& place) {
  const int64_t step = keyword.is_low ? 1 : -1;
  if (const auto integer = files::integer_of(value)) {
    if (!keyword.is_open) return *integer;
    if (*integer == (keyword.is_low ? kMax64 : kMin64)) refuse(place, "beyond 64 bits");
    return *integer + step;
  }
  const double number = files::number_of(value);
  if (!(std::abs(number) < 0x1p62)) refuse(place, "beyond 64 bits");
  const double whole = keyword.is_low ? std::ceil(number) : std::floor(number);
  return static_cast<int64_t>(whole) + (keyword.is_open && whole == number ? step : 0);
}

IntegerRange integer_range(const files::JsonObject& schema, const SchemaPlace& place) {
  IntegerRange range;
  std::string_view low_keyword;
  for (const BoundKeyword& keyword : kBounds) {
    const files::Json* const value = bound_in(schema, place, keyword.name);
    if (value == nullptr) continue;
    const int64_t bound = integer_bound(*value, keyword, place.at(keyword.name));
    std::optional<int64_t>& of_side = keyword.is_low ? range.low : range.high;
    if (keyword.is_low) low_keyword = keyword.name;
    const bool is_tighter = !of_side || (keyword.is_low ? bound > *of_side : bound < *of_side);
    if (is_tighter) of_side = bound;
  }
  if (range.low && range.high && *range.low > *range.high) {
    refuse(place.at(low_keyword), "above all that the schema's maximum allows");
  }
  return range;
}

std::string real_range(const files::JsonObject& schema, const SchemaPlace& place) {
  std::optional<NumberBound> bounds[2];
  double values[2] = {};
  std::string_view last_keyword;
  for (const BoundKeyword& keyword : kBounds) {
    const files::Json* const value = bound_in(schema, place, keyword.name);
    if (value == nullptr) continue;
    last_keyword = last_keyword.empty() ? keyword.name : last_keyword;
    const std::optional<Decimal> decimal = decimal_of(*value);
    if (!decimal || decimal->fraction.size() > kMaxFraction) {
      refuse(place.at(keyword.name),
             "not supported with more than 15 digits before the point or 6 after it");
    }
    std::optional<NumberBound>& bound = bounds[keyword.is_low ? 0 : 1];
    double& known = values[keyword.is_low ? 0 : 1];
    const double number = files::number_of(*value);
    const bool is_tighter = !bound || number == known || (number > known) == keyword.is_low;
    if (!is_tighter) continue;
    bound = NumberBound{*decimal, keyword.is_open};
    known = number;
  }
  std::string text = numbers(bounds[0], bounds[1]);
  if (text.empty()) {
    refuse(place.at(last_keyword),
           "not supported: the schema's range has no number of at most "
           "15 digits");
  }
  return text;
}

bool has_bounds(const files::JsonObject& schema) {
  for (const BoundKeyword& keyword : kBounds) {
    if (schema.contains(keyword.name)) return true;
  }
  return false;
}

}  // namespace

std::string SchemaRules::number(const JsonObject& schema, const SchemaPlace& place,
                                uint32_t types) {
  const bool is_integer = types == kIntegerType;
  if (!has_bounds(schema)) return is_integer ? "integer" : "number";
  if (!is_integer) return real_range(schema, place);
  const IntegerRange range = integer_range(schema, place);
  const int64_t low = range.low.value_or(range.high.value_or(0) < -kUsualMax ? kMin64 : -kUsualMax);
  const int64_t high = range.high.value_or(range.low.value_or(0) > kUsualMax ? kMax64 : kUsualMax);
  return integers(low, high);
}

GrammarRules::Rule SchemaRules::multiples(const JsonObject& schema, const SchemaPlace& place) {
  const SchemaPlace here = place.at("multipleOf");
  const Json* const given = bound_in(schema, place, "multipleOf");
  const double number = files::number_of(*given);
  if (!(number >= 1) || number > static_cast<double>(kMaxMultiple) ||
      number != std::floor(number)) {
    refuse(here, "not supported: expected an integer from 1 to 1000");
  }
  const auto of = static_cast<int64_t>(number);
  if (of == 1) {
    JsonObject& rest = merged_.emplace_back(schema).get_object();
    rest.erase("multipleOf");
    return rules_.make({{SchemaRules::number(rest, place, kIntegerType)}});
  }
  const IntegerRange range = integer_range(schema, place);
  if (range.low && range.high) {
    const Rule rule = rules_.make();
    int64_t rest = *range.low % of;
    if (rest < 0) rest += of;
    const bool is_over = rest != 0 && *range.low > kMax64 - (of - rest);
    int64_t first = rest == 0 || is_over ? *range.low : *range.low + (of - rest);
    const auto width = static_cast<uint64_t>(*range.high) - static_cast<uint64_t>(first);
    if (is_over || first > *range.high) refuse(here, "not supported: the range has no multiple");
    if (width / static_cast<uint64_t>(of) >= static_cast<uint64_t>(kMaxListed)) {
      refuse(here, "not supported with a range of more than 10000 multiples");
    }
    for (uint64_t i = 0; i <= width / static_cast<uint64_t>(of); ++i) {
      rules_.add(rule, {literal(std::to_string(first + static_cast<int64_t>(i) * of))});
    }
    return rule;
  }
  if (range.high || (range.low && (*range.low < 0 || *range.low > of))) {
    refuse(here, std::string("not supported together with \"") +
                     (range.high ? "maximum\" alone" : "minimum\" alone, unless that is 0"));
  }
  // A rule for each remainder of the digits so far.
  std::vector<Rule> remainders;
  for (int64_t i = 0; i < of; ++i) remainders.push_back(rules_.make());
  const Rule first = rules_.make();
  for (int64_t i = 0; i < of; ++i) {
    const Rule rule = remainders[static_cast<size_t>(i)];
    if (i == 0) rules_.add(rule, {});
    for (int64_t digit = 0; digit < 10; ++digit) {
      const Rule next = remainders[static_cast<size_t>((10 * i + digit) % of)];
      rules_.add(rule, {literal(std::to_string(digit)), next});
      if (i == 0 && digit > 0) rules_.add(first, {literal(std::to_string(digit)), next});
    }
  }
  const Rule rule = rules_.make({{first}});
  if (!range.low || *range.low <= 0) rules_.add(rule, {literal("0")});
  if (!range.low) rules_.add(rule, {literal("-"), first});
  return rule;
}

}  // namespace heddle::grammar
