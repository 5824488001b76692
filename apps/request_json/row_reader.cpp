#include "request_json/row_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "request_json/nearest.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using files::json_text;
using files::json_type;
using files::text_of;
using json = files::Json;

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: up to there a double is exact

std::string describe(const json& value) {
  if (value.is_string()) return quote(text_of(value));
  return files::is_container(value) ? json_type(value) : json_text(value);
}

}  // namespace

void RowReader::check_field(std::string_view name, std::span<const std::string_view> known) const {
  HEDDLE_CHECK(std::ranges::find(known, name) != known.end(), where_, ": unknown field ",
               quote(name), did_you_mean(name, known));
}

void RowReader::check_fields(std::span<const std::string_view> known) const {
  for (const auto& field : row_.as_object()) check_field(field.key(), known);
}

void RowReader::check_given_fields(std::span<const std::string_view> known) const {
  for (const auto& field : row_.as_object()) {
    if (!field.value().is_null()) check_field(field.key(), known);
  }
}

const json* RowReader::find(const char* field) const { return files::find_given(row_, field); }

std::string RowReader::text(const char* field, const json& value) const {
  HEDDLE_CHECK(value.is_string(), where_, ": ", field, " is ", json_type(value),
               ", expected a string");
  return std::string(text_of(value));
}

std::string RowReader::required_text(const char* field) const {
  const json* value = find(field);
  HEDDLE_CHECK(value != nullptr, where_, ": field ", field, " is missing");
  return text(field, *value);
}

std::string RowReader::optional_text(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return {};
  std::string given = text(field, *value);
  HEDDLE_CHECK(!given.empty(), where_, ": ", field, " is empty, expected a text or null");
  return given;
}

int64_t RowReader::integer(const char* field, int64_t fallback, int64_t low, int64_t high) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  if (value->is_double()) {  // 4.0, as languages without integers write 4
    const double given = value->get_double();
    const bool is_whole = std::abs(given) <= kMostWhole && given == std::trunc(given);
    HEDDLE_CHECK(is_whole, where_, ": ", field, " is ", describe(*value), ", expected an integer");
    HEDDLE_CHECK(given >= static_cast<double>(low) && given <= static_cast<double>(high), where_,
                 ": ", field, " is ", describe(*value), ", expected ", low, " to ", high);
    return static_cast<int64_t>(given);
  }
  HEDDLE_CHECK(files::is_integer(*value), where_, ": ", field, " is ", describe(*value),
               ", expected an integer");
  const std::optional<int64_t> number = files::integer_in(*value, low, high);
  HEDDLE_CHECK(number, where_, ": ", field, " is ", describe(*value), ", expected ", low, " to ",
               high);
  return *number;
}

float RowReader::number(const char* field, float fallback, double low, double high) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  HEDDLE_CHECK(value->is_number(), where_, ": ", field, " is ", describe(*value),
               ", expected a number");
  const double number = files::number_of(*value);
  HEDDLE_CHECK(number >= low && number <= high, where_, ": ", field, " is ", json_text(*value),
               ", expected ", low, " to ", high);
  return static_cast<float>(number);
}

bool RowReader::flag(const char* field, bool fallback) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  HEDDLE_CHECK(value->is_bool(), where_, ": ", field, " is ", describe(*value),
               ", expected true or false");
  return value->get_bool();
}

const RowReader::json* RowReader::array(const char* field, const char* of) const {
  const json* value = find(field);
  HEDDLE_CHECK(value == nullptr || value->is_array(), where_, ": ", field, " is ",
               json_type(*value), ", expected an array of ", of);
  return value;
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
    result.emplace_back(text_of(*value));
  } else {
    HEDDLE_CHECK(value->is_array(), where_, ": stop is ", describe(*value),
                 ", expected a string or an array of strings");
    for (const json& entry : value->get_array()) result.push_back(text("stop[]", entry));
  }
  for (const std::string& stop : result) {
    HEDDLE_CHECK(!stop.empty(), where_, ": stop holds an empty string");
  }
  return result;
}

std::vector<int32_t> token_ids_of(const json& array, const std::string& what) {
  std::vector<int32_t> ids;
  for (const json& entry : array.get_array()) {
    const auto id = files::integer_in(entry, 0, std::numeric_limits<int32_t>::max());
    HEDDLE_CHECK(id, what, " holds ", json_text(entry), ", expected token ids");
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace heddle::app
