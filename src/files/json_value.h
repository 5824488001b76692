#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <boost/json/value.hpp>

#include "files/json.h"

namespace heddle::files {

/// What errors call it: "a string", "an object", "an integer", "a fraction".
[[nodiscard]] const char* json_kind(const Json& value);
/// JSON's own word: "string", "object", "number", "boolean".
[[nodiscard]] const char* json_type(const Json& value);

/// The member of an object; null where it has none of that key, or is no object.
[[nodiscard]] const Json* find_member(const Json& value, std::string_view key);
/// The same; null also where it is null, which counts as not given.
[[nodiscard]] const Json* find_given(const Json& value, std::string_view key);
/// Elements of an array, members of an object; of anything else 0.
[[nodiscard]] size_t size_of(const Json& value);

[[nodiscard]] inline bool is_container(const Json& value) {
  return value.is_array() || value.is_object();
}
/// A number without fraction or exponent that 64 bits hold.
[[nodiscard]] inline bool is_integer(const Json& value) {
  return value.is_int64() || value.is_uint64();
}
/// The integer; none where it is another value, or above 2^63 - 1.
[[nodiscard]] std::optional<int64_t> integer_of(const Json& value);
/// The integer from `low` to `high`; none where it is another value.
[[nodiscard]] std::optional<int64_t> integer_in(const Json& value, int64_t low, int64_t high);
/// Any number.
[[nodiscard]] double number_of(const Json& value);
/// A string's bytes.
[[nodiscard]] inline std::string_view text_of(const Json& value) { return value.as_string(); }

[[nodiscard]] bool is_text(const Json& value, std::string_view text);
[[nodiscard]] inline bool is_bool(const Json& value, bool expected) {
  return value.is_bool() && value.get_bool() == expected;
}
[[nodiscard]] inline bool is_number(const Json& value, double expected) {
  return value.is_number() && number_of(value) == expected;
}

/// The elements of a vector or span as an array.
template <class List>
[[nodiscard]] JsonArray json_array(const List& list) {
  JsonArray array;
  array.reserve(list.size());
  for (const auto& element : list) array.emplace_back(element);
  return array;
}

}  // namespace heddle::files
