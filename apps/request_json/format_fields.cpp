#include "request_json/format_fields.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "request_json/field_error.h"
#include "request_json/nearest.h"
#include "request_json/ordered_json.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using files::json_type;
using files::JsonArray;
using files::JsonObject;
using files::text_of;
using json = files::Json;
using Kind = AnswerFormat::Kind;

void check_names(const std::string& field, const json& object,
                 std::span<const std::string_view> known) {
  for (const auto& member : object.get_object()) {
    const std::string_view name = member.key();
    if (member.value().is_null() || std::ranges::find(known, name) != known.end()) continue;
    throw FieldError(field + "." + shown(name),
                     field + ": unknown field " + quote(name) + did_you_mean(name, known));
  }
}

const json& checked_object(const std::string& field, const json& value) {
  if (!value.is_object()) refuse_field(field, " is ", json_type(value), ", expected an object");
  return value;
}

std::string checked_text(const std::string& field, const json& value) {
  if (!value.is_string()) refuse_field(field, " is ", json_type(value), ", expected a string");
  if (text_of(value).empty()) refuse_field(field, " is empty");
  return std::string(text_of(value));
}

bool checked_flag(const std::string& field, const json& value) {
  if (!value.is_bool()) {
    refuse_field(field, " is ", json_type(value), ", expected true or false");
  }
  return value.get_bool();
}

/// An object of JSON, or the text of one.
files::JsonTree checked_json(const std::string& field, const json& value) {
  files::JsonTree tree;
  if (value.is_string()) {
    try {
      tree = parse_ordered_json(std::string(text_of(value)), field);
    } catch (const Error& error) {
      throw FieldError(field, error.what());
    }
  } else {
    *tree = value;
  }
  if (!tree->is_object()) {
    refuse_field(field, " is ", value.is_string() ? "the text of " : "", json_type(*tree),
                 ", expected an object, or the text of one in JSON");
  }
  return tree;
}

AnswerFormat schema_format(const std::string& field, const json& value) {
  return {.kind = Kind::kJsonSchema, .source = files::json_text(*checked_json(field, value))};
}

AnswerFormat choice_format(const std::string& field, const json& value) {
  if (!value.is_array()) {
    refuse_field(field, " is ", json_type(value), ", expected an array of strings");
  }
  AnswerFormat format{.kind = Kind::kChoice};
  for (const json& entry : value.get_array()) {
    if (!entry.is_string()) {
      refuse_field(field, " holds ", json_type(entry), ", expected strings");
    }
    format.choices.emplace_back(text_of(entry));
  }
  if (format.choices.empty()) refuse_field(field, " is empty, expected at least one string");
  return format;
}

/// vLLM's older form, {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, in the words
/// of the newer one.
files::JsonTree newer_tag(const std::string& field, const json& older) {
  constexpr std::string_view kFields[] = {"type", "structures", "triggers"};
  check_names(field, older, kFields);
  const json* const structures = files::find_given(older, "structures");
  const json* const triggers = files::find_given(older, "triggers");
  if (structures == nullptr || !structures->is_array()) {
    refuse_field(field + ".structures", " is no array of objects");
  }
  if (triggers == nullptr || !triggers->is_array()) {
    refuse_field(field + ".triggers", " is missing or no array of strings");
  }
  JsonArray tags;
  for (const json& entry : structures->get_array()) {
    constexpr std::string_view kParts[] = {"begin", "schema", "end"};
    const std::string where = field + ".structures[]";
    check_names(where, checked_object(where, entry), kParts);
    const json *begin = files::find_given(entry, "begin"), *end = files::find_given(entry, "end");
    if (begin == nullptr || end == nullptr) refuse_field(where, ": begin or end is missing");
    const json* const schema = files::find_given(entry, "schema");
    JsonObject content{{"type", "json_schema"}};
    content["json_schema"] = schema == nullptr ? json(JsonObject()) : *schema;
    tags.push_back(JsonObject{
        {"type", "tag"}, {"begin", *begin}, {"content", std::move(content)}, {"end", *end}});
  }
  files::JsonTree tag;
  *tag = JsonObject{
      {"type", "structural_tag"},
      {"format",
       JsonObject{{"type", "triggered_tags"}, {"triggers", *triggers}, {"tags", std::move(tags)}}}};
  return tag;
}

AnswerFormat tag_format(const std::string& field, const json& value) {
  files::JsonTree tag = checked_json(field, value);
  const json* const type = files::find_given(*tag, "type");
  if (type != nullptr && !files::is_text(*type, "structural_tag")) {
    refuse_field(field + ".type", " is ", files::json_text(*type), ", expected \"structural_tag\"");
  }
  if (files::find_given(*tag, "format") == nullptr) tag = newer_tag(field, *tag);
  tag->get_object()["type"] = "structural_tag";
  return {.kind = Kind::kStructuralTag, .source = files::json_text(*tag)};
}

/// {"name": ..., "description": ..., "schema": {...}, "strict": true}. Every answer has its schema,
/// whatever `strict` says.
AnswerFormat named_schema(const std::string& field, const json& value) {
  constexpr std::string_view kFields[] = {"name", "description", "schema", "strict"};
  check_names(field, checked_object(field, value), kFields);
  for (const char* name : {"name", "description"}) {
    const json* const text = files::find_given(value, name);
    if (text != nullptr && !text->is_string()) {
      refuse_field(field + "." + name, " is ", json_type(*text), ", expected a string");
    }
  }
  if (const json* const strict = files::find_given(value, "strict")) {
    static_cast<void>(checked_flag(field + ".strict", *strict));
  }
  const json* const schema = files::find_given(value, "schema");
  if (schema == nullptr) {
    refuse_field(field + ".schema",
                 " is missing; for any object send \"response_format\": {\"type\": "
                 "\"json_object\"}");
  }
  return schema_format(field + ".schema", *schema);
}

AnswerFormat response_format(const json& value) {
  const std::string field = "response_format";
  if (files::is_text(value, "text")) return {};
  const json* const type = files::find_given(checked_object(field, value), "type");
  if (type == nullptr) refuse_field(field, ": field type is missing");
  if (!type->is_string()) {
    refuse_field(field + ".type", " is ", json_type(*type), ", expected a string");
  }
  const std::string_view word = text_of(*type);
  const json* const schema = files::find_given(value, "schema");
  if (word == "text") {
    constexpr std::string_view kFields[] = {"type"};
    check_names(field, value, kFields);
    return {};
  }
  if (word == "json_object") {
    constexpr std::string_view kFields[] = {"type", "schema"};
    check_names(field, value, kFields);
    return schema == nullptr ? AnswerFormat{.kind = Kind::kJson}
                             : schema_format(field + ".schema", *schema);
  }
  if (word == "json_schema") {
    constexpr std::string_view kFields[] = {"type", "json_schema", "schema"};
    check_names(field, value, kFields);
    const json* const named = files::find_given(value, "json_schema");
    if ((named == nullptr) == (schema == nullptr)) {
      refuse_field(field + ".json_schema",
                   named == nullptr ? " is missing" : " and schema are both given");
    }
    return named != nullptr ? named_schema(field + ".json_schema", *named)
                            : schema_format(field + ".schema", *schema);
  }
  if (word == "structural_tag") return tag_format(field, value);
  refuse_field(field + ".type", " is ", quote(word),
               ", expected \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
}

/// Collects formats, of which there may be one.
class OneFormat {
 public:
  void add(const std::string& field, AnswerFormat format) {
    if (format.is_free()) return;
    if (!given_.field.empty()) {
      throw FieldError(field, given_.field + " and " + field +
                                  " are both given; an answer has one format, leave one of them "
                                  "out");
    }
    given_ = {std::move(format), field};
  }
  [[nodiscard]] GivenFormat take() { return std::move(given_); }

 private:
  GivenFormat given_;
};

/// vLLM's {"json": ..., "regex": ..., ...}, of which exactly one is given.
AnswerFormat structured_outputs(const json& value) {
  const std::string field = "structured_outputs";
  constexpr std::string_view kFields[] = {"json",
                                          "regex",
                                          "choice",
                                          "grammar",
                                          "json_object",
                                          "structural_tag",
                                          "disable_any_whitespace",
                                          "disable_additional_properties",
                                          "disable_fallback",
                                          "whitespace_pattern"};
  check_names(field, checked_object(field, value), kFields);
  for (const char* name : {"disable_any_whitespace", "disable_additional_properties"}) {
    const json* const flag = files::find_given(value, name);
    const std::string path = field + "." + name;
    if (flag != nullptr && checked_flag(path, *flag)) {
      refuse_field(path, ": only false is supported; write it into the schema or grammar");
    }
  }
  // There is one way of doing it, which nothing takes the place of.
  if (const json* const flag = files::find_given(value, "disable_fallback")) {
    static_cast<void>(checked_flag(field + ".disable_fallback", *flag));
  }
  if (files::find_given(value, "whitespace_pattern") != nullptr) {
    refuse_field(field + ".whitespace_pattern", " is not supported; leave it out");
  }
  OneFormat one;
  for (const char* name : {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}) {
    const json* const member = files::find_given(value, name);
    if (member == nullptr) continue;
    const std::string path = field + "." + name;
    one.add(path, format_of(path, *member));
  }
  AnswerFormat format = one.take().format;
  if (format.is_free()) {
    refuse_field(field,
                 " has no format; expected json, regex, choice, grammar, json_object or "
                 "structural_tag");
  }
  return format;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// Whether a line begins a rule, and in which form; absent: it does not.
std::optional<Kind> rule_form(std::string_view line) {
  size_t at = line.find_first_not_of(" \t");
  if (at == line.npos) return std::nullopt;
  if (line[at] == '?' || line[at] == '!') ++at;  // Lark's marks for what becomes of a rule
  const size_t name = at;
  while (at < line.size() && (is_word(line[at]) || line[at] == '.')) ++at;
  if (at == name) return std::nullopt;
  at = std::min(line.find_first_not_of(" \t", at), line.size());
  if (line.substr(at, 3) == "::=") return Kind::kGrammar;
  if (line.substr(at, 1) == ":") return Kind::kLark;
  return std::nullopt;
}

}  // namespace

AnswerFormat grammar_format(std::string source) {
  Kind kind = Kind::kGrammar;
  for (size_t begin = 0; begin < source.size();) {
    const size_t end = std::min(source.find('\n', begin), source.size());
    if (const auto form = rule_form(std::string_view(source).substr(begin, end - begin))) {
      kind = *form;
      break;
    }
    begin = end + 1;
  }
  return {.kind = kind, .source = std::move(source)};
}

AnswerFormat format_of(const std::string& field, const files::Json& value) {
  const std::string_view last = std::string_view(field).substr(field.rfind('.') + 1);
  if (last == "response_format") return response_format(value);
  if (last == "structured_outputs") return structured_outputs(value);
  if (last == "json" || last == "guided_json" || last == "json_schema") {
    return schema_format(field, value);
  }
  if (last == "json_object") {
    return {.kind = checked_flag(field, value) ? Kind::kJson : Kind::kText};
  }
  if (last == "choice" || last == "guided_choice") return choice_format(field, value);
  if (last == "structural_tag") return tag_format(field, value);
  if (last == "regex" || last == "guided_regex") {
    return {.kind = Kind::kRegex, .source = checked_text(field, value)};
  }
  const bool is_none = last == "grammar" && files::is_text(value, "");  // llama.cpp's default
  return is_none ? AnswerFormat() : grammar_format(checked_text(field, value));
}

std::optional<GivenFormat> read_format(const RowReader& row) {
  OneFormat one;
  bool is_given = false;
  try {
    for (const std::string_view name : kFormatFields) {
      const std::string field(name);
      const json* const value = row.find(field.c_str());
      if (value == nullptr) continue;
      is_given = true;
      one.add(field, format_of(field, *value));
    }
  } catch (const FieldError& error) {
    throw FieldError(error.field(), row.where() + ": " + error.what());
  }
  return is_given ? std::optional(one.take()) : std::nullopt;
}

}  // namespace heddle::app
