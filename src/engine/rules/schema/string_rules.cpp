// Strings of JSON by their schemas.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine/rules/schema/schema_rules.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::grammar {
namespace {

/// What zod writes next to the format "email", whose addresses here all fit it.
constexpr std::string_view kEmailOfZod =
    R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)";

/// What is sure to be of the format, and all that people write of it but leap days, years of zeros
/// and the like.
std::string pattern_of_format(std::string_view name) {
  const std::string date = R"((000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-)"
                           R"((02-(0[1-9]|1\d|2[0-8])|(0[469]|11)-(0[1-9]|[12]\d|30)|)"
                           R"((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])))";
  const std::string time =
      R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
  const std::string of_day = R"((T(\d{1,6}H(\d{1,6}M(\d{1,6}S)?)?|\d{1,6}M(\d{1,6}S)?|\d{1,6}S)))";
  const std::string byte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  const std::string label = "[A-Za-z0-9]+(-[A-Za-z0-9]+)*";
  const std::string atom = "[A-Za-z0-9_+-]+";
  const std::string hex = "[0-9a-fA-F]";
  const std::string in_uri = "([A-Za-z0-9._~!$&()*+,;=:@-]|%" + hex + "{2})";
  if (name == "date") return date;
  if (name == "time") return time;
  if (name == "date-time") return date + "T" + time;
  if (name == "duration") {
    return R"(P(\d{1,6}W|(\d{1,6}Y(\d{1,6}M(\d{1,6}D)?)?|\d{1,6}M(\d{1,6}D)?|\d{1,6}D))" + of_day +
           "?|" + of_day + ")";
  }
  if (name == "email") return atom + "(\\." + atom + ")*@(" + label + "\\.){1,3}[A-Za-z]{2,12}";
  if (name == "hostname") {
    const std::string rest = "([A-Za-z0-9-]{0,22}[A-Za-z0-9])?";
    return "([A-Za-z0-9]" + rest + "\\.){0,3}[A-Za-z]" + rest;
  }
  if (name == "ipv4") return byte + "(\\." + byte + "){3}";
  if (name == "ipv6") {
    const std::string group = hex + "{1,4}";
    std::string all = "(" + group + ":){7}" + group + "|::(" + group + "(:" + group + "){0,6})?";
    for (int before = 1; before < 7; ++before) {
      all += "|(" + group + ":){" + std::to_string(before) + "}(:|(:" + group + "){1," +
             std::to_string(7 - before) + "})";
    }
    return all;
  }
  if (name == "uuid") return hex + "{8}(-" + hex + "{4}){3}-" + hex + "{12}";
  if (name == "uri") {
    return "[A-Za-z][A-Za-z0-9+.-]{0,15}://(" + label + "\\.)*" + label + R"((:\d{1,4})?)" + "(/" +
           in_uri + "*)*" + "(\\?(" + in_uri + "|/)*)?(#" + in_uri + "*)?";
  }
  return "";
}

TextPattern format_pattern(const files::Json& format, const SchemaPlace& place) {
  if (!format.is_string()) refuse(place, "no string");
  const std::string pattern = pattern_of_format(files::text_of(format));
  if (pattern.empty()) {
    refuse(place, files::quote(files::text_of(format)) +
                      ", which is not supported: expected date, time, date-time, duration, "
                      "email, hostname, ipv4, ipv6, uuid or uri");
  }
  return parse_pattern("^(" + pattern + ")$");
}

TextPattern given_pattern(const files::Json& pattern, const SchemaPlace& place) {
  if (!pattern.is_string()) refuse(place, "no string");
  try {
    return parse_pattern(files::text_of(pattern));
  } catch (const PatternFault& fault) {
    refuse(place, std::string("not supported: it has ") + fault.what());
  }
}

}  // namespace

GrammarRules::Sequence SchemaRules::string(const JsonObject& schema, const SchemaPlace& place) {
  const int64_t min = count_of(schema, place, "minLength", 0);
  const int64_t max = count_of(schema, place, "maxLength", TextPattern::kNoEnd);
  if (min > max) refuse(place.at("minLength"), "above maxLength");
  std::vector<TextPattern> all;  // that a text has to fit
  if (const Json* const format = schema.if_contains("format")) {
    all.push_back(format_pattern(*format, place.at("format")));
  }
  if (const Json* const pattern = schema.if_contains("pattern")) {
    const bool is_implied = !all.empty() && files::is_text(schema.at("format"), "email") &&
                            files::is_text(*pattern, kEmailOfZod);
    if (!is_implied) all.push_back(given_pattern(*pattern, place.at("pattern")));
  }
  if (schema.contains("minLength") || schema.contains("maxLength")) {
    // Most patterns can be cut themselves, which takes fewer rules.
    const bool is_cut = all.size() == 1 && restrict_length(all.front(), min, max);
    if (!is_cut) all.push_back(repeat_of(one_of(CharSet::all()), min, max));
  }
  if (all.empty()) return {"string"};
  if (all.size() == 1) return {literal("\""), texts_.rest_of(all.front())};
  const char* const keyword = schema.contains("format") ? "format" : "pattern";
  const char* const other = keyword == std::string_view("format") && schema.contains("pattern")
                                ? "pattern"
                            : schema.contains("maxLength") ? "maxLength"
                                                           : "minLength";
  try {
    TextAutomaton both = automaton_of(all.front());
    for (size_t i = 1; i < all.size(); ++i) both = intersection_of(both, automaton_of(all[i]));
    const Rule rule = rules_.make({{literal("\""), texts_.rest_of(both)}});
    places_.emplace(rule, place.at(keyword).text());
    return {rule};
  } catch (const PatternFault& fault) {
    refuse(place.at(keyword),
           std::string("not supported together with \"") + other + "\": both have " + fault.what());
  }
}

}  // namespace heddle::grammar
