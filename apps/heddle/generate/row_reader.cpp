#include "generate/row_reader.h"

#include <algorithm>
#include <limits>

#include "heddle/core/error.h"

#include "nearest.h"
#include "shown.h"

namespace heddle::app {
namespace {

using json = nlohmann::ordered_json;

std::string describe(const json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  return value.is_structured() ? value.type_name() : value.dump();
}

}  // namespace

void RowReader::check_field(const std::string& name,
                            std::span<const std::string_view> known) const {
  HEDDLE_CHECK(std::ranges::find(known, name) != known.end(), where_, ": unknown field ",
               quote(name), "; the nearest known field is ", nearest(name, known));
}

void RowReader::check_fields(std::span<const std::string_view> known) const {
  for (const auto& field : row_.items()) check_field(field.key(), known);
}

void RowReader::check_given_fields(std::span<const std::string_view> known) const {
  for (const auto& field : row_.items()) {
    if (!field.value().is_null()) check_field(field.key(), known);
  }
}

const json* RowReader::find(const char* field) const {
  const auto it = row_.find(field);
  return it == row_.end() || it->is_null() ? nullptr : &*it;
}

std::string RowReader::text(const char* field, const json& value) const {
  HEDDLE_CHECK(value.is_string(), where_, ": ", field, " is ", value.type_name(),
               ", expected a string");
  return value.get<std::string>();
}

std::string RowReader::required_text(const char* field) const {
  const json* value = find(field);
  HEDDLE_CHECK(value != nullptr, where_, ": field ", field, " is missing");
  return text(field, *value);
}

int64_t RowReader::integer(const char* field, int64_t fallback, int64_t low, int64_t high) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  HEDDLE_CHECK(value->is_number_integer(), where_, ": ", field, " is ", describe(*value),
               ", expected an integer");
  const bool too_large = value->is_number_unsigned() &&
                         value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  const int64_t number = too_large ? 0 : value->get<int64_t>();
  HEDDLE_CHECK(!too_large && number >= low && number <= high, where_, ": ", field, " is ",
               describe(*value), ", expected ", low, " to ", high);
  return number;
}

float RowReader::number(const char* field, float fallback, double low, double high) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  HEDDLE_CHECK(value->is_number(), where_, ": ", field, " is ", describe(*value),
               ", expected a number");
  const double number = value->get<double>();
  HEDDLE_CHECK(number >= low && number <= high, where_, ": ", field, " is ", value->dump(),
               ", expected ", low, " to ", high);
  return static_cast<float>(number);
}

bool RowReader::flag(const char* field, bool fallback) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  HEDDLE_CHECK(value->is_boolean(), where_, ": ", field, " is ", describe(*value),
               ", expected true or false");
  return value->get<bool>();
}

std::string RowReader::echoed(const char* field) const {
  const json* value = find(field);
  return value == nullptr ? "" : json_text(*value);
}

std::vector<std::string> RowReader::stop_strings(const std::vector<std::string>& fallback) const {
  const json* value = find("stop");
  if (value == nullptr) return fallback;
  std::vector<std::string> result;
  if (value->is_string()) {
    result.push_back(value->get<std::string>());
  } else {
    HEDDLE_CHECK(value->is_array(), where_, ": stop is ", describe(*value),
                 ", expected a string or an array of strings");
    for (const json& entry : *value) result.push_back(text("stop[]", entry));
  }
  for (const std::string& stop : result) {
    HEDDLE_CHECK(!stop.empty(), where_, ": stop holds an empty string");
  }
  return result;
}

std::string json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace heddle::app
