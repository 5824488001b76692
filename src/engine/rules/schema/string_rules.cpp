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

struct TextFormat {
  std::string_view name;
  std::string pattern;
};

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

}  // namespace

GrammarRules::Sequence SchemaRules::string(const JsonObject& schema, const SchemaPlace& place) {
  const int64_t min = count_of(schema, place, "minLength", 0);
  const int64_t max = count_of(schema, place, "maxLength", TextPattern::kNoEnd);
  if (min > max) refuse(place.at("minLength"), "above maxLength");
  const Json* const pattern = schema.if_contains("pattern");
  const Json* const format = schema.if_contains("format");
  const bool has_lengths = schema.contains("minLength") || schema.contains("maxLength");
  if (pattern == nullptr && format == nullptr && !has_lengths) return {"string"};
  TextPattern texts = repeat_of(one_of(CharSet::all()), min, max);
  if (format != nullptr || pattern != nullptr) {
    const std::string_view keyword = format != nullptr ? "format" : "pattern";
    const SchemaPlace here = place.at(keyword);
    const Json& given = schema.at(keyword);
    if (!given.is_string()) refuse(here, "no string");
    if (format != nullptr && pattern != nullptr) {
      refuse(here, "not supported together with \"pattern\"");
    }
    std::string source(files::text_of(given));
    if (format != nullptr) {
      source = pattern_of_format(source);
      if (source.empty()) {
        refuse(here, files::quote(files::text_of(given)) +
                         ", which is not supported: expected date, time, date-time, duration, "
                         "email, hostname, ipv4, ipv6, uuid or uri");
      }
      source = "^(" + source + ")$";
    }
    try {
      texts = parse_pattern(source);
    } catch (const PatternFault& fault) {
      refuse(here, std::string("not supported: it has ") + fault.what());
    }
    if (has_lengths && !restrict_length(texts, min, max)) {
      const char* const other = schema.contains("maxLength") ? "maxLength" : "minLength";
      refuse(here, std::string("not supported together with \"") + other +
                       "\", which cuts more than one repeat of a character in it");
    }
  }
  return {literal("\""), texts_.rest_of(texts)};
}

}  // namespace heddle::grammar
