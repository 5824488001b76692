#include "prompts_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

using nlohmann::json;

/// Nesting that no honest row reaches; deeper text is refused before it is parsed.
constexpr int kMaxDepth = 64;

/// Reads the fields of one row; every error names file, line and field.
class RowReader {
 public:
  RowReader(const json& row, const std::string& where) : row_(row), where_(where) {}

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
                 value->dump(), ", expected ", low, " to ", high);
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
      result.push_back({message.required_text("role"), message.required_text("content")});
    }
    return result;
  }

  std::vector<std::string> stop_strings() const {
    const json* value = find("stop");
    if (value == nullptr) return {};
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
    return value.is_structured() ? value.type_name() : value.dump();
  }

  const json& row_;
  const std::string where_;
};

int nesting_of(const std::string& text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

json parse_object(const std::string& text, const std::string& where) {
  const int depth = nesting_of(text);
  HEDDLE_CHECK(depth <= kMaxDepth, where, ": JSON nested ", depth, " deep, at most ", kMaxDepth,
               " is supported");
  json row;
  try {
    row = json::parse(text);
  } catch (const json::exception& error) {
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    throw_error(ErrorCode::kInvalidArgument, where, ": malformed JSON: ",
                what.substr(what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2));
  }
  HEDDLE_CHECK(row.is_object(), where, ": the row is ", row.type_name(), ", expected an object");
  return row;
}

}  // namespace

Request parse_row(const std::string& text, const std::string& where, bool raw, int64_t seed) {
  const json row = parse_object(text, where);
  const RowReader reader(row, where);
  const json* prompt = reader.find("prompt");
  const json* messages = reader.find("messages");
  HEDDLE_CHECK((prompt != nullptr) != (messages != nullptr), where, ": the row has ",
               prompt != nullptr ? "both prompt and messages" : "neither prompt nor messages",
               ", expected one of them");
  Request request;
  if (messages != nullptr) {
    request.messages = reader.messages(*messages);
  } else if (raw) {
    request.text = reader.text("prompt", *prompt);
  } else {
    request.messages = {{"user", reader.text("prompt", *prompt)}};
  }
  if (const json* adapter = reader.find("adapter"))
    request.adapter = reader.text("adapter", *adapter);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  request.max_tokens = reader.integer("max_tokens", request.max_tokens, 1, kMax);
  SamplingOptions& sampling = request.sampling;
  sampling.temperature = reader.number("temperature", sampling.temperature, 0.0, 1e6);
  sampling.top_k = static_cast<int32_t>(
      reader.integer("top_k", sampling.top_k, 0, std::numeric_limits<int32_t>::max()));
  sampling.top_p = reader.number("top_p", sampling.top_p, 0.0, 1.0);
  sampling.min_p = reader.number("min_p", sampling.min_p, 0.0, 1.0);
  sampling.seed = reader.integer("seed", seed, std::numeric_limits<int64_t>::min(), kMax);
  request.stop = reader.stop_strings();
  return request;
}

PromptsFile::PromptsFile(const std::string& path, const RowDefaults& defaults)
    : path_(path), defaults_(defaults), file_(path) {
  HEDDLE_CHECK(file_.is_open(), path, ": cannot open: ", std::strerror(errno));
  struct stat status = {};
  HEDDLE_CHECK(stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode), path,
               ": not a regular file; the prompts are read twice");
}

std::optional<Request> PromptsFile::next() {
  std::string text;
  while (std::getline(file_, text)) {
    ++line_;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = path_ + ", line " + std::to_string(line_);
    const int64_t seed =
        static_cast<int64_t>(static_cast<uint64_t>(defaults_.seed) + static_cast<uint64_t>(row_++));
    return parse_row(text, where, defaults_.raw, seed);
  }
  HEDDLE_CHECK(!file_.bad(), path_, ": read error after line ", line_, ": ", std::strerror(errno));
  return std::nullopt;
}

int64_t PromptsFile::check(const std::string& path, const RowDefaults& defaults) {
  PromptsFile file(path, defaults);
  int64_t num_rows = 0;
  while (file.next()) ++num_rows;
  return num_rows;
}

}  // namespace heddle::app
