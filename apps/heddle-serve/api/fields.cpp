#include "api/fields.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/bounds.h"
#include "api/field_table.h"
#include "files/json_text.h"
#include "request_json/field_error.h"
#include "request_json/format_fields.h"
#include "request_json/merge_fields.h"
#include "request_json/nearest.h"
#include "request_json/ordered_json.h"
#include "request_json/row_reader.h"
#include "request_json/sampling_fields.h"
#include "request_json/shown.h"
#include "request_json/speculation_fields.h"

namespace heddle::serve {
namespace {

using app::RowReader;
using files::find_member;
using files::is_number;
using files::json_type;

constexpr const char* kWhere = "request";

constexpr auto kCommon = std::to_array<std::string_view>({"model",
                                                          "lora",
                                                          "merge",
                                                          "adapter_id",
                                                          "adapter_source",
                                                          "api_token",
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
                                                          "cache_salt",
                                                          "priority",
                                                          "return_token_ids",
                                                          "return_tokens_as_token_ids",
                                                          "logprobs"});
constexpr float kLeastTopP = std::numeric_limits<float>::min();
constexpr size_t kMostIgnored = 32;  // names that are reported

std::vector<int32_t> token_list(const RowReader& row, const char* field) {
  const json* value = row.find(field);
  if (value == nullptr) return {};
  HEDDLE_CHECK(value->is_array(), field, " is ", json_type(*value), ", expected an array");
  return app::token_ids_of(*value, field);
}

void check_limits(const json& body, const app::RequestLimits& limits) {
  const auto check = [&body](const char* field, int64_t max, const char* option) {
    const json* const value = find_member(body, field);
    if (value != nullptr) check_count(files::size_of(*value), max, field, option);
  };
  check("stop", limits.stop_strings, "--max-stop-strings");
  check("bad_words", limits.bad_words, "--max-bad-words");
  check("logit_bias", limits.logit_bias, "--max-logit-bias");
}

void read_stream(const RowReader& row, bool ignores_unknown, Generation& generation) {
  generation.stream = row.flag("stream", false);
  const json* options = row.find("stream_options");
  if (options == nullptr) return;
  HEDDLE_CHECK(options->is_object(), "stream_options is ", json_type(*options),
               ", expected an object");
  HEDDLE_CHECK(generation.stream, "stream_options needs stream to be true");
  constexpr std::string_view kFields[] = {"include_usage", "include_obfuscation",
                                          "continuous_usage_stats"};
  for (const auto& entry : options->get_object()) {
    const std::string_view field = entry.key();
    if (entry.value().is_null() || std::ranges::find(kFields, field) != std::end(kFields)) {
      continue;
    }
    const std::string name = "stream_options." + std::string(field);
    if (!ignores_unknown) {
      throw bad_request(
          "stream_options: unknown field " + app::quote(field) + app::did_you_mean(field, kFields),
          app::shown(name));
    }
    add_ignored(generation.ignored, name);
  }
  const RowReader reader(*options, "stream_options");
  generation.include_usage = reader.flag("include_usage", false);
  for (const char* field : {"include_obfuscation", "continuous_usage_stats"}) {
    if (!reader.flag(field, false)) continue;
    if (!ignores_unknown) {
      throw bad_request("stream_options: " + std::string(field) +
                            " is not supported; leave it out or set it to false",
                        "stream_options." + std::string(field));
    }
    add_ignored(generation.ignored, "stream_options." + std::string(field));
  }
}

/// A prediction is a hint, which clients send without knowing the server: one that drafts nothing
/// leaves it out. A method is a wish, which is refused where it cannot be met.
void read_speculation(const RowReader& row, const std::string& own, Generation& generation,
                      Request& request) {
  app::read_speculation_fields(row, request);
  const std::string& method = request.speculation;
  const bool speculates = !own.empty() && own != "off";
  const bool has_method = method.empty() || method == "off" || method == own || own == "suffix";
  if (!has_method) {
    throw app::FieldError("speculation", row.where() + ": speculation is " + app::quote(method) +
                                             ", but this server has " +
                                             (speculates ? app::quote(own) + " alone" : "none") +
                                             " (--speculate)");
  }
  if (!speculates && row.find("speculation") != nullptr && method.empty()) {
    add_ignored(generation.ignored, "speculation");
  }
  generation.has_prediction = row.find("prediction") != nullptr;
  if (speculates && method != "off") return;
  request.prediction.clear();
  if (generation.has_prediction) add_ignored(generation.ignored, "prediction");
}

}  // namespace

AdapterList read_adapter_list(std::span<const json> list, const std::string& where) {
  AdapterList adapters;
  for (const json& entry : list) {
    HEDDLE_CHECK(entry.is_object(), where, " holds ", json_type(entry), ", expected objects");
    const RowReader reader(entry, where);
    constexpr std::string_view kFields[] = {"name", "scale"};
    reader.check_fields(kFields);
    constexpr double kMost = std::numeric_limits<float>::max();
    adapters.push_back({reader.required_text("name"), reader.number("scale", 1.0f, -kMost, kMost)});
  }
  return adapters;
}

void read_model(const RowReader& row, Generation& generation) {
  ModelChoice& choice = generation.choice;
  if (const json* model = row.find("model")) choice.model = row.text("model", *model);
  if (const json* id = row.find("adapter_id")) choice.adapter_id = row.text("adapter_id", *id);
  choice.from = read_source(row);
  const json* list = row.find("lora");
  const json* merge = row.find("merge");
  HEDDLE_CHECK(merge == nullptr || list != nullptr,
               "merge is given, but not lora, the list of adapters that it is of");
  if (merge != nullptr) choice.merge = app::read_merge(*merge, "merge");
  if (list == nullptr) return;
  HEDDLE_CHECK(list->is_array(), "lora is ", json_type(*list), ", expected an array of objects");
  choice.adapters = read_adapter_list(list->get_array(), "lora");
}

void read_format(const RowReader& row, Generation& generation, Request& request) {
  std::optional<app::GivenFormat> given = app::read_format(row);
  if (!given) return;
  request.format = std::move(given->format);
  generation.format_field = std::move(given->field);
}

int64_t random_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return static_cast<int64_t>(random() >> 1);
}

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

std::span<const std::string_view> common_fields() {
  constexpr static auto kAll = [] {
    std::array<std::string_view,
               kCommon.size() + app::kFormatFields.size() + app::kSpeculationFields.size()>
        all;
    auto place = std::ranges::copy(kCommon, all.begin()).out;
    place = std::ranges::copy(app::kFormatFields, place).out;
    std::ranges::copy(app::kSpeculationFields, place);
    return all;
  }();
  return kAll;
}

void add_ignored(std::vector<std::string>& ignored, std::string_view name) {
  const bool is_new =
      ignored.size() < kMostIgnored && std::ranges::find(ignored, name) == ignored.end();
  if (is_new) ignored.emplace_back(name);
}

void check_fields(json& body, std::span<const std::string_view> fields,
                  std::span<const std::string_view> more, bool ignores_unknown,
                  std::vector<std::string>& ignored) {
  files::JsonObject kept(body.storage());
  for (auto& entry : body.as_object()) {
    const std::string field(entry.key());
    json& value = entry.value();
    const auto is_in = [&](const auto& list) {
      return std::ranges::find(list, field) != list.end();
    };
    if (value.is_null()) continue;
    if (is_in(fields) || is_in(more)) {
      kept.emplace(field, std::move(value));
      continue;
    }
    if (const PassiveField* passive = find_passive(field)) {
      if (!is_accepted(*passive, value)) {
        throw bad_request(field + ": " + std::string(passive->refusal), field);
      }
      if (is_hint(*passive)) add_ignored(ignored, field);
      continue;
    }
    if (!ignores_unknown) {
      std::vector<std::string_view> known(fields.begin(), fields.end());
      known.insert(known.end(), more.begin(), more.end());
      throw bad_request("unknown field " + app::quote(field) + app::did_you_mean(field, known),
                        app::shown(field));
    }
    add_ignored(ignored, field);
  }
  body.as_object() = std::move(kept);
}

void check_fields(json& body, std::span<const std::string_view> fields, bool ignores_unknown) {
  std::vector<std::string> ignored;
  check_fields(body, fields, {}, ignores_unknown, ignored);
}

json take(json& body, const char* field) {
  files::JsonObject& object = body.as_object();
  const auto place = object.find(field);
  if (place == object.end()) return {};
  json value = std::move(place->value());
  object.stable_erase(place);
  return value;
}

SourceChoice read_source(const RowReader& row) {
  SourceChoice choice{.source = row.optional_text("adapter_source"),
                      .token = row.optional_text("api_token")};
  const std::string& source = choice.source;
  HEDDLE_CHECK(source.empty() || source == "local" || source == "hub" || source == "s3",
               "adapter_source is ", app::quote(source), R"(, expected "local", "hub" or "s3")");
  return choice;
}

std::optional<int64_t> read_priority(const RowReader& row) {
  using Limits = std::numeric_limits<int64_t>;
  if (row.find("priority") == nullptr) return std::nullopt;
  return row.integer("priority", 0, Limits::min(), Limits::max());
}

void read_common(json& body, const app::ServeOptions& options, Generation& generation,
                 Request& request) {
  const app::RequestLimits& limits = options.limits;
  check_limits(body, limits);
  const json prompt_logprobs = take(body, "prompt_logprobs");
  files::JsonObject& object = body.as_object();
  const auto is_given_as = [&object](const char* field, double value) {
    const json* const given = object.if_contains(field);
    return given != nullptr && is_number(*given, value);
  };
  if (is_given_as("top_k", -1)) object.stable_erase("top_k");  // vLLM's word for all
  if (is_given_as("seed", -1)) object.stable_erase("seed");    // vLLM's and llama.cpp's for any
  const bool has_no_limit = is_given_as("max_tokens", -1);     // llama.cpp's
  if (has_no_limit) object["max_tokens"] = std::numeric_limits<int64_t>::max();
  if (is_given_as("top_p", 0))
    object["top_p"] = kLeastTopP;  // the most likely token, as in OpenAI's
  const bool is_cut_to_fit = is_given_as("truncate_prompt_tokens", -1);  // vLLM's word
  if (is_cut_to_fit) object.stable_erase("truncate_prompt_tokens");
  const bool has_length = !has_no_limit && object.contains("max_tokens");
  const RowReader row(body, kWhere);
  request.sampling.temperature = 1.0f;  // as OpenAI has it where the model's files say nothing
  int64_t unused = 0;                   // chat and completions have max_tokens of their own
  options.generation.apply(request.sampling, unused);
  request.sampling.seed = random_seed();
  app::read_sampling_fields(row, request);
  if (is_cut_to_fit) generation.room = has_length ? std::max<int64_t>(request.max_tokens, 1) : 1;
  read_format(row, generation, request);
  read_speculation(row, options.model.engine.speculation.method, generation, request);
  read_model(row, generation);
  read_stream(row, options.ignore_unknown_fields, generation);
  generation.n = row.integer("n", 1, 1, std::max<int64_t>(limits.n, 1));
  generation.best_of = generation.n;
  generation.return_token_ids = row.flag("return_token_ids", false);
  generation.returns_token_names = row.flag("return_tokens_as_token_ids", false);
  generation.echo = row.flag("echo", false);
  if (const json* id = row.find("request_id")) generation.request_id = row.text("request_id", *id);
  request.cache_salt = row.optional_text("cache_salt");
  generation.priority = read_priority(row);
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
  HEDDLE_CHECK(!generation.stream, "prompt_logprobs cannot be streamed; set stream to false");
  request.prompt_logprobs = true;
}

}  // namespace heddle::serve
