#include "generate/row_parser.h"

#include <algorithm>
#include <array>
#include <span>

#include "heddle/core/error.h"

#include "answer_options.h"
#include "files/json_value.h"
#include "generate/adapter_fields.h"
#include "request_json/chat_fields.h"
#include "request_json/format_fields.h"
#include "request_json/ordered_json.h"
#include "request_json/row_reader.h"
#include "request_json/sampling_fields.h"
#include "request_json/speculation_fields.h"

namespace heddle::app {
namespace {

using json = files::Json;

constexpr std::array<std::string_view, 16> kRowFields = {"prompt",
                                                         "messages",
                                                         "adapter",
                                                         "adapters",
                                                         "each_adapter",
                                                         "merge",
                                                         "n",
                                                         "model",
                                                         "id",
                                                         "custom_id",
                                                         "metadata",
                                                         "cache_salt",
                                                         "tools",
                                                         "documents",
                                                         "chat_template_kwargs",
                                                         "add_generation_prompt"};
/// Of rows that want numbers in place of an answer.
constexpr std::array<std::string_view, 9> kValueFields = {"prompt",       "adapter",  "adapters",
                                                          "each_adapter", "model",    "id",
                                                          "custom_id",    "metadata", "cache_salt"};
constexpr auto kAllFields = [] {
  std::array<std::string_view, kRowFields.size() + kSamplingFields.size() + kFormatFields.size() +
                                   kSpeculationFields.size()>
      all;
  auto place = std::ranges::copy(kRowFields, all.begin()).out;
  place = std::ranges::copy(kSamplingFields, place).out;
  std::ranges::copy(kSpeculationFields, std::ranges::copy(kFormatFields, place).out);
  return all;
}();

files::JsonTree parse_object(const std::string& text, const std::string& where) {
  files::JsonTree row = parse_ordered_json(text, where);
  HEDDLE_CHECK(row->is_object(), where, ": the row is ", files::json_type(*row),
               ", expected an object");
  return row;
}

/// The conversation or the text, with the system message where the row has none of its own.
void read_prompt(const RowReader& reader, const RowDefaults& defaults, const std::string& where,
                 Request& request) {
  const json* prompt = reader.find("prompt");
  const json* messages = reader.find("messages");
  HEDDLE_CHECK((prompt != nullptr) != (messages != nullptr), where, ": the row has ",
               prompt != nullptr ? "both prompt and messages" : "neither prompt nor messages",
               ", expected exactly one of them");
  if (messages != nullptr) {
    read_messages(reader, *messages, request);
  } else if (defaults.raw) {
    for (const std::string_view field : kChatFields) {
      HEDDLE_CHECK(reader.find(field.data()) == nullptr, where, ": field ", field,
                   " needs the chat template, which a prompt with --raw does not use");
    }
    request.text = reader.text("prompt", *prompt);
    return;
  } else {
    request.messages = {{"user", reader.text("prompt", *prompt)}};
  }
  if (defaults.answer.system) add_system(*defaults.answer.system, request);
  read_chat_fields(reader, request);
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
  set_answer_options(defaults.answer, request);
  request.sampling.seed = static_cast<int64_t>(static_cast<uint64_t>(request.sampling.seed) +
                                               static_cast<uint64_t>(index));
  return request;
}

void parse_row(const std::string& text, const std::string& where, const RowDefaults& defaults,
               Row& row) {
  const files::JsonTree object = parse_object(text, where);
  const RowReader reader(*object, where);
  row.id = reader.echoed("id");
  row.custom_id = reader.echoed("custom_id");
  row.metadata = reader.echoed("metadata");
  const bool wants_values = defaults.answer.values.kind != WantedValues::Kind::kNone;
  reader.check_fields(wants_values ? std::span<const std::string_view>(kValueFields) : kAllFields);
  row.request = default_request(defaults, row.index);
  read_prompt(reader, defaults, where, row.request);
  read_adapters(reader, defaults, row);
  read_sampling_fields(reader, row.request);
  if (auto given = read_format(reader)) row.request.format = std::move(given->format);
  read_speculation_fields(reader, row.request);
  row.request.cache_salt = reader.optional_text("cache_salt");
  row.n = reader.integer("n", defaults.answer.n, 1, 128);
  HEDDLE_CHECK(row.n == 1 || row.each.empty(), where, ": the row has each_adapter, and n is ",
               row.n, ", expected only one of them");
}

}  // namespace heddle::app
