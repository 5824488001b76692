#include "api/fields.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/bounds.h"
#include "files/json_text.h"
#include "generate/fields/sampling_fields.h"
#include "generate/ordered_json.h"
#include "generate/row_reader.h"
#include "nearest.h"
#include "shown.h"

namespace heddle::serve {
namespace {

using app::RowReader;
using files::find_member;
using files::is_bool;
using files::is_number;
using files::is_text;
using files::json_type;

constexpr const char* kWhere = "request";

constexpr auto kCommon = std::to_array<std::string_view>({"model",
                                                          "lora",
                                                          "adapter_id",
                                                          "max_tokens",
                                                          "temperature",
                                                          "top_p",
                                                          "n",
                                                          "stop",
                                                          "seed",
                                                          "stream",
                                                          "stream_options",
                                                          "logit_bias",
                                                          "presence_penalty",
                                                          "frequency_penalty",
                                                          "top_k",
                                                          "min_p",
                                                          "repetition_penalty",
                                                          "min_tokens",
                                                          "ignore_eos",
                                                          "stop_token_ids",
                                                          "include_stop_str_in_output",
                                                          "skip_special_tokens",
                                                          "allowed_token_ids",
                                                          "bad_words",
                                                          "truncate_prompt_tokens",
                                                          "prompt_logprobs",
                                                          "echo",
                                                          "add_special_tokens",
                                                          "request_id",
                                                          "return_token_ids",
                                                          "logprobs"});

bool is_empty_list(const json& value) { return value.is_array() && value.get_array().empty(); }

/// {"type": "text"}
bool is_plain_text(const json& format) {
  const json* const type = find_member(format, "type");
  return files::size_of(format) == 1 && type != nullptr && is_text(*type, "text");
}

/// Whether a field that heddle does nothing with asks for nothing: {"type": "text"} as
/// response_format, say.
bool is_neutral(std::string_view field, const json& value) {
  if (field == "user" || field == "metadata" || field == "cache_salt") return true;
  if (field == "store") return is_bool(value, false);
  if (field == "response_format") return is_plain_text(value);
  if (field == "tools") return is_empty_list(value);
  if (field == "tool_choice") return is_text(value, "none") || is_text(value, "auto");
  if (field == "parallel_tool_calls") return value.is_bool();
  if (field == "priority") return is_number(value, 0);
  if (field == "suffix") return is_text(value, "");
  return false;
}

/// Fields that the API has and heddle does not do, but for their neutral values.
constexpr std::pair<std::string_view, const char*> kNotDone[] = {
    {"response_format", "structured output is not supported, but {\"type\": \"text\"}"},
    {"structured_outputs", "structured output is not supported"},
    {"guided_json", "structured output is not supported"},
    {"tools", "tools are not supported, but an empty list"},
    {"tool_choice", "tools are not supported, but \"none\""},
    {"parallel_tool_calls", "expected true or false"},
    {"priority", "requests are served in their order, expected 0"},
    {"suffix", "text is not filled in before a suffix"},
    {"store", "answers are not stored, expected false"},
};

void read_model(const RowReader& row, Generation& generation) {
  ModelChoice& choice = generation.choice;
  if (const json* model = row.find("model")) choice.model = row.text("model", *model);
  if (const json* id = row.find("adapter_id")) choice.adapter_id = row.text("adapter_id", *id);
  const json* list = row.find("lora");
  if (list == nullptr) return;
  HEDDLE_CHECK(list->is_array(), "lora is ", json_type(*list), ", expected an array of objects");
  for (const json& entry : list->get_array()) {
    HEDDLE_CHECK(entry.is_object(), "lora holds ", json_type(entry), ", expected objects");
    const RowReader reader(entry, "lora");
    constexpr std::string_view kFields[] = {"name", "scale"};
    reader.check_fields(kFields);
    constexpr double kMost = std::numeric_limits<float>::max();
    choice.adapters.push_back(
        {reader.required_text("name"), reader.number("scale", 1.0f, -kMost, kMost)});
  }
}

std::vector<int32_t> token_list(const RowReader& row, const char* field) {
  const json* value = row.find(field);
  std::vector<int32_t> ids;
  if (value == nullptr) return ids;
  HEDDLE_CHECK(value->is_array(), field, " is ", json_type(*value), ", expected an array");
  for (const json& entry : value->get_array()) {
    const auto id = files::integer_in(entry, 0, std::numeric_limits<int32_t>::max());
    HEDDLE_CHECK(id, field, " holds ", files::json_text(entry), ", expected token ids");
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

void check_limits(const json& body, const app::RequestLimits& limits) {
  const json* const stop = find_member(body, "stop");
  if (stop != nullptr && stop->is_array()) {
    check_count(files::size_of(*stop), limits.stop_strings, "stop", "--max-stop-strings");
  }
  const json* const words = find_member(body, "bad_words");
  if (words != nullptr && words->is_array()) {
    check_count(files::size_of(*words), limits.bad_words, "bad_words", "--max-bad-words");
  }
  const json* const bias = find_member(body, "logit_bias");
  if (bias != nullptr && bias->is_object()) {
    check_count(files::size_of(*bias), limits.logit_bias, "logit_bias", "--max-logit-bias");
  }
}

void read_stream(const RowReader& row, Generation& generation) {
  generation.stream = row.flag("stream", false);
  const json* options = row.find("stream_options");
  if (options == nullptr) return;
  HEDDLE_CHECK(options->is_object(), "stream_options is ", json_type(*options),
               ", expected an object");
  HEDDLE_CHECK(generation.stream, "stream_options is given, and stream is not true");
  constexpr std::string_view kFields[] = {"include_usage", "include_obfuscation"};
  const RowReader reader(*options, "stream_options");
  reader.check_fields(kFields);
  generation.include_usage = reader.flag("include_usage", false);
  HEDDLE_CHECK(!reader.flag("include_obfuscation", false),
               "stream_options: include_obfuscation is not supported");
}

int64_t random_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return static_cast<int64_t>(random() >> 1);
}

}  // namespace

files::JsonTree parse_body(const std::string& body) {
  try {
    files::JsonTree value = app::parse_ordered_json(body, kWhere);
    if (!value->is_object()) {
      throw bad_request(std::string("the body is ") + json_type(*value) + ", expected an object");
    }
    check_bounds(*value);
    return value;
  } catch (const Error& error) {
    throw bad_request(error.what());
  }
}

std::span<const std::string_view> common_fields() { return kCommon; }

void check_fields(json& body, std::span<const std::string_view> fields,
                  std::span<const std::string_view> more, bool ignores_unknown) {
  files::JsonObject kept(body.storage());
  for (auto& entry : body.as_object()) {
    const std::string field(entry.key());
    json& value = entry.value();
    const auto is_in = [&](const auto& list) {
      return std::ranges::find(list, field) != list.end();
    };
    if (value.is_null() || is_neutral(field, value)) continue;
    if (is_in(fields) || is_in(more)) {
      kept.emplace(field, std::move(value));
      continue;
    }
    const auto not_done =
        std::ranges::find(kNotDone, field, &std::pair<std::string_view, const char*>::first);
    if (not_done != std::end(kNotDone)) throw bad_request(field + ": " + not_done->second, field);
    if (ignores_unknown) continue;
    std::vector<std::string_view> known(fields.begin(), fields.end());
    known.insert(known.end(), more.begin(), more.end());
    throw bad_request("unknown field " + app::quote(field) + "; the nearest known field is " +
                          std::string(app::nearest(field, known)),
                      app::shown(field));
  }
  body.as_object() = std::move(kept);
}

json take(json& body, const char* field) {
  files::JsonObject& object = body.as_object();
  const auto place = object.find(field);
  if (place == object.end()) return {};
  json value = std::move(place->value());
  object.stable_erase(place);
  return value;
}

void read_common(json& body, const app::ServeOptions& options, Generation& generation,
                 Request& request) {
  const app::RequestLimits& limits = options.limits;
  check_limits(body, limits);
  const json prompt_logprobs = take(body, "prompt_logprobs");
  if (const json* top_k = find_member(body, "top_k"); top_k != nullptr && is_number(*top_k, -1)) {
    body.as_object().stable_erase("top_k");  // vLLM's word for all
  }
  const RowReader row(body, kWhere);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = random_seed();
  app::read_sampling_fields(row, request);
  read_model(row, generation);
  read_stream(row, generation);
  generation.n = row.integer("n", 1, 1, std::max<int64_t>(limits.n, 1));
  generation.best_of = generation.n;
  generation.return_token_ids = row.flag("return_token_ids", false);
  generation.echo = row.flag("echo", false);
  if (const json* id = row.find("request_id")) generation.request_id = row.text("request_id", *id);
  request.ignore_end = row.flag("ignore_eos", false);
  request.include_stop = row.flag("include_stop_str_in_output", false);
  request.skip_special_tokens = row.flag("skip_special_tokens", true);
  request.allowed_token_ids = token_list(row, "allowed_token_ids");
  request.truncate_prompt_tokens =
      row.integer("truncate_prompt_tokens", 0, 0, std::numeric_limits<int64_t>::max());
  if (row.find("add_special_tokens") != nullptr) {
    request.add_special_tokens = row.flag("add_special_tokens", true);
  }
  if (prompt_logprobs.is_null()) return;
  const json holder = files::JsonObject{{"prompt_logprobs", prompt_logprobs}};
  generation.prompt_logprobs =
      RowReader(holder, kWhere).integer("prompt_logprobs", 0, 0, limits.top_logprobs);
  HEDDLE_CHECK(!generation.stream, "prompt_logprobs is given, and stream is true");
  request.prompt_logprobs = true;
}

}  // namespace heddle::serve
