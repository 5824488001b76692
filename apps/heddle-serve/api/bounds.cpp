#include "api/bounds.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "api/api_error.h"
#include "files/json_text.h"
#include "files/json_value.h"
#include "request_json/format_fields.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

using files::Json;

/// What of a field is counted.
enum class Measure : uint8_t {
  kNothing,  // the body's own bound holds it
  kText,     // bytes of a text
  kEntries,  // of a list or object
  kTexts,    // bytes of each text in a list, or of the one that is there instead
  kJson,     // bytes of JSON text without spaces
};

struct Bound {
  std::string_view field;
  Measure measure;
  size_t most;
};

constexpr size_t kName = 512, kOther = 64 << 10, kWord = 1024;
constexpr size_t kFormat = 256 << 10;  // a schema or grammar
constexpr size_t kIds = 256 << 10;     // as many as the largest vocabularies have
constexpr size_t kFields = 1024;       // of one object of the API
constexpr size_t kCopies = 1 << 20;
constexpr size_t kCopiedBytes = 64 << 20;
constexpr size_t kAdapters = 64;  // of one row, as the engine has it

/// Lists whose length an option bounds are counted where that is known; here their texts are.
constexpr Bound kTable[] = {{"prompt", Measure::kNothing, 0},
                            {"inputs", Measure::kNothing, 0},
                            {"messages", Measure::kNothing, 0},
                            {"input", Measure::kNothing, 0},
                            {"system", Measure::kNothing, 0},
                            {"instructions", Measure::kText, 256 << 10},
                            {"previous_response_id", Measure::kText, kName},
                            {"text", Measure::kJson, kFormat},
                            {"output_config", Measure::kJson, kFormat},
                            {"stop_sequences", Measure::kTexts, kWord},
                            {"model", Measure::kText, kName},
                            {"adapter_id", Measure::kText, kName},
                            {"adapter_source", Measure::kText, kName},
                            {"api_token", Measure::kText, 4096},
                            {"lora_name", Measure::kText, kName},
                            {"lora_path", Measure::kText, 4096},
                            {"request_id", Measure::kText, 256},
                            {"user", Measure::kText, kWord},
                            {"cache_salt", Measure::kText, kWord},
                            {"prediction", Measure::kJson, kFormat},
                            {"chat_template", Measure::kText, 256 << 10},
                            {"lora", Measure::kEntries, kAdapters},
                            {"lora", Measure::kJson, kOther},
                            {"each_adapter", Measure::kEntries, kAdapters},
                            {"ids", Measure::kEntries, kAdapters},
                            {"ids", Measure::kTexts, kName},
                            {"weights", Measure::kEntries, kAdapters},
                            {"stop", Measure::kTexts, kWord},
                            {"bad_words", Measure::kTexts, kWord},
                            {"stop_token_ids", Measure::kEntries, 4096},
                            {"allowed_token_ids", Measure::kEntries, kIds},
                            {"tokens", Measure::kEntries, kIds},
                            {"logit_bias", Measure::kNothing, 0},
                            {"tools", Measure::kEntries, 256},
                            {"tools", Measure::kJson, 4 * kFormat},
                            {"documents", Measure::kEntries, 1024},
                            {"query", Measure::kNothing, 0},
                            {"queries", Measure::kNothing, 0},
                            {"text_1", Measure::kNothing, 0},
                            {"text_2", Measure::kNothing, 0},
                            {"data_1", Measure::kNothing, 0},
                            {"data_2", Measure::kNothing, 0},
                            {"questions", Measure::kNothing, 0}};

[[noreturn]] void refuse(const std::string& field, size_t count, const char* unit, size_t most) {
  throw bad_request(field + " has " + std::to_string(count) + " " + unit + ", at most " +
                        std::to_string(most) + " are allowed",
                    field);
}

/// Bytes of the value's JSON text, but for what is escaped in it.
size_t json_bytes(const Json& value) {
  if (value.is_string()) return files::text_of(value).size() + 2;
  size_t bytes = 1;  // the brackets, and a comma for each entry but the first
  if (value.is_array()) {
    for (const Json& entry : value.get_array()) bytes += json_bytes(entry) + 1;
  } else if (value.is_object()) {
    for (const auto& member : value.get_object()) {
      bytes += member.key().size() + 4 + json_bytes(member.value());
    }
  } else {
    return files::json_text(value).size();
  }
  return std::max<size_t>(bytes, 2);
}

void check_text(const std::string& field, const Json& value, size_t most) {
  if (!value.is_string()) return;  // whoever reads the field says what it expects
  const size_t size = files::text_of(value).size();
  if (size > most) refuse(field, size, "bytes", most);
}

void check_field(const std::string& field, const Json& value, const Bound& bound) {
  switch (bound.measure) {
    case Measure::kNothing: return;
    case Measure::kText: return check_text(field, value, bound.most);
    case Measure::kTexts:
      check_text(field, value, bound.most);
      if (!value.is_array()) return;
      for (size_t i = 0; i < value.get_array().size(); ++i) {
        check_text(field + "[" + std::to_string(i) + "]", value.get_array()[i], bound.most);
      }
      return;
    case Measure::kEntries:
      if (value.is_structured() && files::size_of(value) > bound.most) {
        refuse(field, files::size_of(value), "entries", bound.most);
      }
      return;
    case Measure::kJson:
      const size_t bytes = json_bytes(value);
      if (bytes > bound.most) refuse(app::shown(field), bytes, "bytes of JSON", bound.most);
  }
}

}  // namespace

void check_bounds(const Json& body) {
  const files::JsonObject& fields = body.get_object();
  if (fields.size() > kFields) refuse("the request", fields.size(), "fields", kFields);
  for (const auto& member : fields) {
    const std::string field(member.key());
    const Json& value = member.value();
    if (std::ranges::find(app::kFormatFields, field) != app::kFormatFields.end()) {
      check_field(field, value, {field, Measure::kJson, kFormat});
      continue;
    }
    if ((field == "parameters" || field == "merged_adapters") && value.is_object()) {
      check_bounds(value);
      continue;
    }
    bool has_row = false;
    for (const Bound& bound : kTable) {
      if (bound.field != field) continue;
      has_row = true;
      check_field(field, value, bound);
    }
    if (!has_row) check_field(field, value, {field, Measure::kJson, kOther});
  }
}

void check_count(size_t count, int64_t most, const char* field, const char* option) {
  if (static_cast<int64_t>(count) <= most) return;
  throw bad_request(std::string(field) + " has " + std::to_string(count) + " entries, at most " +
                        std::to_string(most) + " are allowed (" + option + ")",
                    field);
}

void check_copies(const char* field, size_t num_entries, size_t rows) {
  if (num_entries * rows > kCopies) {
    throw bad_request(std::string(field) + " has " + std::to_string(num_entries) + " entries for " +
                          std::to_string(rows) + " prompts, at most " + std::to_string(kCopies) +
                          " are allowed together",
                      field);
  }
}

void check_copies(const Json& body, size_t rows) {
  const size_t bytes = json_bytes(body);
  if (bytes * rows <= kCopiedBytes) return;
  throw bad_request("the request has " + std::to_string(bytes) + " bytes of JSON for " +
                        std::to_string(rows) + " adapters, at most " +
                        std::to_string(kCopiedBytes) + " are allowed together",
                    "each_adapter");
}

}  // namespace heddle::serve
