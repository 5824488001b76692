#include "generate/row_parser.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "generate/ordered_json.h"
#include "nearest.h"
#include "shown.h"

namespace heddle::app {
namespace {

using json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 14> kRowFields = {
    "prompt", "messages", "adapter", "model", "max_tokens", "temperature", "top_k",
    "top_p",  "min_p",    "seed",    "stop",  "id",         "custom_id",   "metadata"};
constexpr std::array<std::string_view, 2> kMessageFields = {"role", "content"};

/// Reads the fields of one row; every error names file, line and field.
class RowReader {
 public:
  RowReader(const json& row, const std::string& where) : row_(row), where_(where) {}

  /// Refuses a field that is not one of `known`.
  void check_fields(std::span<const std::string_view> known) const {
    for (const auto& field : row_.items()) {
      HEDDLE_CHECK(std::ranges::find(known, field.key()) != known.end(), where_, ": unknown field ",
                   quote(field.key()), "; the nearest known field is ",
                   nearest(field.key(), known));
    }
  }

  /// The field's value, or nullptr when it is absent or null.
  const json* find(const char* field) const {
    const auto it = row_.find(field);
    return it == row_.end() || it->is_null() ? nullptr : &*it;
  }

  std::string text(const char* field, const json& value) const {
    HEDDLE_CHECK(value.is_string(), where_, ": ", field, " is ", value.type_name(),
                 ", expected a string");
    return value.get<std::string>();
  }

  int64_t integer(const char* field, int64_t fallback, int64_t low, int64_t high) const {
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

  float number(const char* field, float fallback, double low, double high) const {
    const json* value = find(field);
    if (value == nullptr) return fallback;
    HEDDLE_CHECK(value->is_number(), where_, ": ", field, " is ", describe(*value),
                 ", expected a number");
    const double number = value->get<double>();
    HEDDLE_CHECK(number >= low && number <= high, where_, ": ", field, " is ", value->dump(),
                 ", expected ", low, " to ", high);
    return static_cast<float>(number);
  }

  /// The field as JSON text, empty when it is absent or null.
  std::string echoed(const char* field) const {
    const json* value = find(field);
    return value == nullptr ? "" : value->dump(-1, ' ', false, json::error_handler_t::replace);
  }

  std::vector<Message> messages(const json& value) const {
    HEDDLE_CHECK(value.is_array() && !value.empty(), where_, ": messages is ",
                 value.is_array() ? "empty" : value.type_name(),
                 ", expected an array of at least one object");
    std::vector<Message> result;
    for (const json& entry : value) {
      const std::string name = "messages[" + std::to_string(result.size()) + "]";
      HEDDLE_CHECK(entry.is_object(), where_, ": ", name, " is ", entry.type_name(),
                   ", expected an object");
      const RowReader message(entry, where_ + ": " + name);
      message.check_fields(kMessageFields);
      result.push_back({message.required_text("role"), message.required_text("content")});
    }
    return result;
  }

  std::vector<std::string> stop_strings(const std::vector<std::string>& fallback) const {
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

 private:
  std::string required_text(const char* field) const {
    const json* value = find(field);
    HEDDLE_CHECK(value != nullptr, where_, ": field ", field, " is missing");
    return text(field, *value);
  }

  static std::string describe(const json& value) {
    if (value.is_string()) return quote(value.get_ref<const std::string&>());
    return value.is_structured() ? value.type_name() : value.dump();
  }

  const json& row_;
  const std::string where_;
};

json parse_object(const std::string& text, const std::string& where) {
  json row = parse_ordered_json(text, where);
  HEDDLE_CHECK(row.is_object(), where, ": the row is ", row.type_name(), ", expected an object");
  return row;
}

/// The conversation or the text, with the system message where the row has none of its own.
void read_prompt(const RowReader& reader, const RowDefaults& defaults, const std::string& where,
                 Request& request) {
  const json* prompt = reader.find("prompt");
  const json* messages = reader.find("messages");
  HEDDLE_CHECK((prompt != nullptr) != (messages != nullptr), where, ": the row has ",
               prompt != nullptr ? "both prompt and messages" : "neither prompt nor messages",
               ", expected one of them");
  if (messages != nullptr) {
    request.messages = reader.messages(*messages);
  } else if (defaults.raw) {
    request.text = reader.text("prompt", *prompt);
    return;
  } else {
    request.messages = {{"user", reader.text("prompt", *prompt)}};
  }
  const std::optional<std::string>& system = defaults.answer.system;
  if (system && request.messages.front().role != "system") {
    request.messages.insert(request.messages.begin(), {"system", *system});
  }
}

/// The adapter that `adapter` or `model` names, else the default; empty for the base model.
std::string read_adapter(const RowReader& reader, const RowDefaults& defaults,
                         const std::string& where) {
  const json* adapter = reader.find("adapter");
  const json* model = reader.find("model");
  std::optional<std::string> named;
  if (adapter != nullptr) {
    const std::string name = reader.text("adapter", *adapter);
    const bool is_known = std::ranges::find(defaults.adapters, name) != defaults.adapters.end();
    HEDDLE_CHECK(is_known || name == kBaseName, where, ": unknown adapter ", quote(name),
                 "; there are ", names_of(defaults.adapters));
    named = is_known ? name : "";
  }
  if (model == nullptr) return named.value_or(defaults.adapter);
  const std::string name = reader.text("model", *model);
  const bool is_adapter = std::ranges::find(defaults.adapters, name) != defaults.adapters.end();
  const bool is_base = name == kBaseName ||
                       std::ranges::find(defaults.base_names, name) != defaults.base_names.end();
  HEDDLE_CHECK(is_adapter || is_base || defaults.base_names.empty(), where, ": unknown model ",
               quote(name), "; there are ", names_of(defaults.adapters), " and ",
               defaults.base_names.empty() ? "" : shown(defaults.base_names.front()));
  const std::string chosen = is_adapter ? name : "";
  HEDDLE_CHECK(!named || *named == chosen, where, ": adapter is ", quote(named.value_or("")),
               " and model is ", quote(name), ", expected one of them");
  return chosen;
}

void read_answer_options(const RowReader& reader, Request& request) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  request.max_tokens = reader.integer("max_tokens", request.max_tokens, 1, kMax);
  SamplingOptions& sampling = request.sampling;
  sampling.temperature = reader.number("temperature", sampling.temperature, 0.0, 1e6);
  sampling.top_k = static_cast<int32_t>(
      reader.integer("top_k", sampling.top_k, 0, std::numeric_limits<int32_t>::max()));
  sampling.top_p = reader.number("top_p", sampling.top_p, std::numeric_limits<float>::min(), 1.0);
  sampling.min_p = reader.number("min_p", sampling.min_p, 0.0, 1.0);
  sampling.seed = reader.integer("seed", sampling.seed, std::numeric_limits<int64_t>::min(), kMax);
  request.stop = reader.stop_strings(request.stop);
}

}  // namespace

std::string names_of(const std::vector<std::string>& adapters) {
  std::string names;
  for (const std::string& name : adapters) names += name + ", ";
  return names + kBaseName;
}

Request default_request(const RowDefaults& defaults, int64_t index) {
  Request request;
  request.adapter = defaults.adapter;
  request.max_tokens = defaults.answer.max_tokens;
  request.sampling = defaults.answer.sampling;
  request.sampling.seed = static_cast<int64_t>(static_cast<uint64_t>(request.sampling.seed) +
                                               static_cast<uint64_t>(index));
  request.stop = defaults.answer.stop;
  return request;
}

void parse_row(const std::string& text, const std::string& where, const RowDefaults& defaults,
               Row& row) {
  const json object = parse_object(text, where);
  const RowReader reader(object, where);
  row.id = reader.echoed("id");
  row.custom_id = reader.echoed("custom_id");
  row.metadata = reader.echoed("metadata");
  reader.check_fields(kRowFields);
  row.request = default_request(defaults, row.index);
  read_prompt(reader, defaults, where, row.request);
  row.request.adapter = read_adapter(reader, defaults, where);
  read_answer_options(reader, row.request);
}

}  // namespace heddle::app
