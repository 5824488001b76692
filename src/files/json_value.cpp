#include "files/json_value.h"

#include <limits>

namespace heddle::files {

const char* json_kind(const Json& value) {
  using boost::json::kind;
  switch (value.kind()) {
    case kind::null: return "null";
    case kind::bool_: return "a bool";
    case kind::int64:
    case kind::uint64: return "an integer";
    case kind::double_: return "a fraction";
    case kind::string: return "a string";
    case kind::array: return "an array";
    case kind::object: return "an object";
  }
  return "no JSON";
}

const char* json_type(const Json& value) {
  if (value.is_number()) return "number";
  if (value.is_bool()) return "boolean";
  if (value.is_string()) return "string";
  if (value.is_array()) return "array";
  return value.is_object() ? "object" : "null";
}

const Json* find_member(const Json& value, std::string_view key) {
  const JsonObject* const object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

const Json* find_given(const Json& value, std::string_view key) {
  const Json* const member = find_member(value, key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

size_t size_of(const Json& value) {
  if (const JsonArray* const array = value.if_array()) return array->size();
  const JsonObject* const object = value.if_object();
  return object == nullptr ? 0 : object->size();
}

std::optional<int64_t> integer_of(const Json& value) {
  if (const int64_t* const number = value.if_int64()) return *number;
  const uint64_t* const number = value.if_uint64();
  if (number == nullptr || *number > uint64_t{std::numeric_limits<int64_t>::max()}) return {};
  return static_cast<int64_t>(*number);
}

std::optional<int64_t> integer_in(const Json& value, int64_t low, int64_t high) {
  const std::optional<int64_t> number = integer_of(value);
  return number && *number >= low && *number <= high ? number : std::nullopt;
}

double number_of(const Json& value) {
  if (const int64_t* const number = value.if_int64()) return static_cast<double>(*number);
  if (const uint64_t* const number = value.if_uint64()) return static_cast<double>(*number);
  return value.as_double();
}

bool is_text(const Json& value, std::string_view text) {
  return value.is_string() && text_of(value) == text;
}

}  // namespace heddle::files
