#include "generate/row_parser.h"

#include <algorithm>
#include <array>
#include <limits>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "generate/adapter_fields.h"
#include "generate/chat_fields.h"
#include "generate/ordered_json.h"
#include "generate/row_reader.h"

namespace heddle::app {
namespace {

using json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 19> kRowFields = {"prompt",
                                                         "messages",
                                                         "adapter",
                                                         "adapters",
                                                         "model",
                                                         "max_tokens",
                                                         "temperature",
                                                         "top_k",
                                                         "top_p",
                                                         "min_p",
                                                         "seed",
                                                         "stop",
                                                         "id",
                                                         "custom_id",
                                                         "metadata",
                                                         "tools",
                                                         "documents",
                                                         "chat_template_kwargs",
                                                         "add_generation_prompt"};

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
    read_messages(reader, *messages, request);
  } else if (defaults.raw) {
    for (const std::string_view field : kChatFields) {
      HEDDLE_CHECK(reader.find(field.data()) == nullptr, where, ": field ", field,
                   " stands with a prompt that is plain text (--raw)");
    }
    request.text = reader.text("prompt", *prompt);
    return;
  } else {
    request.messages = {{"user", reader.text("prompt", *prompt)}};
  }
  if (defaults.answer.system) add_system(*defaults.answer.system, request);
  read_chat_fields(reader, request);
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
  read_adapters(reader, defaults, row.request);
  read_answer_options(reader, row.request);
}

}  // namespace heddle::app
