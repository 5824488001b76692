#include "request_json/speculation_fields.h"

#include <algorithm>
#include <string>

#include "files/json_text.h"
#include "files/json_value.h"
#include "request_json/field_error.h"
#include "request_json/nearest.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using files::json_type;
using files::text_of;
using json = files::Json;

constexpr std::array<std::string_view, 3> kMethods = {"off", "ngram", "suffix"};

/// Throws FieldError, whose text begins with the place of the row.
template <class... Parts>
[[noreturn]] void refuse(const RowReader& row, const std::string& field, const Parts&... parts) {
  std::ostringstream text;
  text << row.where() << ": " << field;
  (text << ... << parts);
  throw FieldError(field, text.str());
}

std::string read_method(const RowReader& row, const json& value) {
  if (value.is_bool()) return value.get_bool() ? "" : "off";
  const bool is_method =
      value.is_string() && std::ranges::find(kMethods, text_of(value)) != kMethods.end();
  if (!is_method) {
    refuse(row, "speculation", " is ",
           files::is_container(value) ? json_type(value) : shown(files::json_text(value)),
           R"(, expected true, false, "off", "ngram" or "suffix")");
  }
  return std::string(text_of(value));
}

const json& member(const RowReader& row, const json& object, const std::string& field,
                   const char* name) {
  const json* const value = files::find_given(object, name);
  if (value == nullptr) refuse(row, field + "." + name, " is missing");
  return *value;
}

void check_type(const RowReader& row, const json& object, const std::string& field,
                const char* word) {
  if (files::is_text(member(row, object, field, "type"), word)) return;
  refuse(row, field + ".type", " is not \"", word, "\"");
}

void check_members(const RowReader& row, const json& object, const std::string& field,
                   std::array<std::string_view, 2> known) {
  for (const auto& entry : object.get_object()) {
    const std::string_view name = entry.key();
    if (entry.value().is_null() || std::ranges::find(known, name) != known.end()) continue;
    refuse(row, field, ": unknown field ", quote(name), did_you_mean(name, known));
  }
}

/// A text, or {"type": "text", "text": "..."} several times.
std::string read_content(const RowReader& row, const json& content) {
  const std::string field = "prediction.content";
  if (content.is_string()) return std::string(text_of(content));
  if (!content.is_array()) {
    refuse(row, field, " is ", json_type(content), ", expected a string or an array of texts");
  }
  std::string text;
  for (size_t i = 0; i < content.get_array().size(); ++i) {
    const json& part = content.get_array()[i];
    const std::string place = field + "[" + std::to_string(i) + "]";
    if (!part.is_object()) refuse(row, place, " is ", json_type(part), ", expected an object");
    check_members(row, part, place, {"type", "text"});
    check_type(row, part, place, "text");
    const json& own = member(row, part, place, "text");
    if (!own.is_string()) {
      refuse(row, place + ".text", " is ", json_type(own), ", expected a string");
    }
    text += text_of(own);
  }
  return text;
}

std::string read_prediction(const RowReader& row, const json& value) {
  if (!value.is_object()) {
    refuse(row, "prediction", " is ", json_type(value),
           R"(, expected an object such as {"type": "content", "content": "..."})");
  }
  check_members(row, value, "prediction", {"type", "content"});
  check_type(row, value, "prediction", "content");
  return read_content(row, member(row, value, "prediction", "content"));
}

}  // namespace

void read_speculation_fields(const RowReader& row, Request& request) {
  if (const json* const value = row.find("speculation")) {
    request.speculation = read_method(row, *value);
  }
  if (const json* const value = row.find("prediction")) {
    request.prediction = read_prediction(row, *value);
  }
}

}  // namespace heddle::app
