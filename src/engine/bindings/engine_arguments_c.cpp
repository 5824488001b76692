#include "engine/bindings/engine_arguments.h"

#include <cstdint>
#include <utility>

namespace heddle::capi {
namespace {

template <class T>
const T* array_of(const char* name, const T* first, size_t count) {
  HEDDLE_CHECK(first != nullptr || count == 0, name, " is NULL, but it has ", count, " elements");
  HEDDLE_CHECK(count <= kMaxText / sizeof(T), name, " has ", count, " elements, expected at most ",
               kMaxText / sizeof(T));
  return first;
}

std::vector<std::string> strings_of(const char* name, const heddle_string* given, size_t count) {
  std::vector<std::string> strings;
  const heddle_string* const first = array_of(name, given, count);
  for (size_t i = 0; i < count; ++i) strings.push_back(string_of(name, first[i]));
  return strings;
}

AdapterList list_of(const heddle_engine_adapter* given, size_t count) {
  AdapterList list;
  const heddle_engine_adapter* const first = array_of("adapters", given, count);
  for (size_t i = 0; i < count; ++i) {
    list.push_back({string_of("name", first[i].name, kMaxName), first[i].scale});
  }
  return list;
}

AdapterMerge merge_of(const heddle_adapter_merge& given) {
  HEDDLE_CHECK(given.method >= HEDDLE_MERGE_LINEAR && given.method <= HEDDLE_MERGE_MAGNITUDE_PRUNE,
               "merge.method is ", given.method, ", expected ", HEDDLE_MERGE_LINEAR, " to ",
               HEDDLE_MERGE_MAGNITUDE_PRUNE);
  HEDDLE_CHECK(
      given.majority_sign >= HEDDLE_SIGN_TOTAL && given.majority_sign <= HEDDLE_SIGN_FREQUENCY,
      "merge.majority_sign is ", given.majority_sign, ", expected ", HEDDLE_SIGN_TOTAL, " or ",
      HEDDLE_SIGN_FREQUENCY);
  return {.method = static_cast<AdapterMerge::Method>(given.method),
          .density = given.density,
          .majority_sign = static_cast<AdapterMerge::MajoritySign>(given.majority_sign),
          .seed = given.seed};
}

AnswerFormat format_of(const heddle_answer_format& given) {
  HEDDLE_CHECK(given.kind >= HEDDLE_FORMAT_TEXT && given.kind <= HEDDLE_FORMAT_STRUCTURAL_TAG,
               "format.kind is ", given.kind, ", expected ", HEDDLE_FORMAT_TEXT, " to ",
               HEDDLE_FORMAT_STRUCTURAL_TAG);
  return {.kind = static_cast<AnswerFormat::Kind>(given.kind),
          .source = string_of("format.source", given.source),
          .choices = strings_of("format.choices", given.choices, given.num_choices)};
}

WantedValues values_of(const heddle_wanted_values& given) {
  HEDDLE_CHECK(given.kind >= HEDDLE_VALUES_NONE && given.kind <= HEDDLE_VALUES_TOKEN_SCORES,
               "values.kind is ", given.kind, ", expected ", HEDDLE_VALUES_NONE, " to ",
               HEDDLE_VALUES_TOKEN_SCORES);
  HEDDLE_CHECK(given.normalize >= -1 && given.normalize <= 1, "values.normalize is ",
               given.normalize, ", expected -1, 0 or 1");
  WantedValues values{.kind = static_cast<WantedValues::Kind>(given.kind),
                      .pooling = string_of("values.pooling", given.pooling, kMaxName),
                      .dimensions = given.dimensions,
                      .activates = given.activates};
  if (given.normalize >= 0) values.normalize = given.normalize == 1;
  const int32_t* ids = array_of("values.token_ids", given.token_ids, given.num_token_ids);
  values.token_ids.assign(ids, ids + given.num_token_ids);
  return values;
}

static_assert(static_cast<int>(WantedValues::Kind::kTokenScores) == HEDDLE_VALUES_TOKEN_SCORES);
static_assert(static_cast<int>(AnswerFormat::Kind::kStructuralTag) == HEDDLE_FORMAT_STRUCTURAL_TAG);
static_assert(static_cast<int>(AdapterMerge::Method::kMagnitudePrune) ==
              HEDDLE_MERGE_MAGNITUDE_PRUNE);
static_assert(static_cast<int>(AdapterMerge::MajoritySign::kFrequency) == HEDDLE_SIGN_FREQUENCY);

}  // namespace

std::string string_of(const char* name, heddle_string text, size_t limit) {
  HEDDLE_CHECK(text.data != nullptr || text.size == 0, name, ".data is NULL, but it has ",
               text.size, " bytes");
  HEDDLE_CHECK(text.size <= limit, name, " has ", text.size, " bytes, expected at most ", limit);
  return text.size == 0 ? std::string() : std::string(text.data, text.size);
}

std::string path_of(const char* name, heddle_string text) {
  std::string path = string_of(name, text, kMaxPath);
  HEDDLE_CHECK(!path.empty(), name, " is empty");
  HEDDLE_CHECK(path.find('\0') == std::string::npos, name, " holds a NUL byte");
  return path;
}

std::vector<RequestVariant> variants_of(const heddle_engine_variant* given, size_t count) {
  std::vector<RequestVariant> variants;
  const heddle_engine_variant* const first = array_of("variants", given, count);
  for (size_t i = 0; i < count; ++i) {
    variants.push_back({list_of(first[i].adapters, first[i].num_adapters), first[i].seed_offset});
  }
  return variants;
}

Request request_of(const heddle_engine_request& given) {
  Request request;
  const heddle_message* messages = array_of("messages", given.messages, given.num_messages);
  for (size_t i = 0; i < given.num_messages; ++i) {
    request.messages.push_back(
        {string_of("role", messages[i].role), string_of("content", messages[i].content)});
  }
  request.messages_json = string_of("messages_json", given.messages_json);
  std::string text = string_of("text", given.text);
  if (given.text.data != nullptr) request.text = std::move(text);
  if (const int32_t* ids = array_of("token_ids", given.token_ids, given.num_token_ids)) {
    request.token_ids.emplace(ids, ids + given.num_token_ids);
  }
  request.adapter = string_of("adapter", given.adapter, kMaxName);
  request.adapters = list_of(given.adapters, given.num_adapters);
  request.merge = merge_of(given.merge);
  request.max_tokens = given.max_tokens;
  request.sampling = {.temperature = given.temperature,
                      .top_k = given.top_k,
                      .top_p = given.top_p,
                      .min_p = given.min_p,
                      .seed = given.seed,
                      .repetition_penalty = given.repetition_penalty,
                      .presence_penalty = given.presence_penalty,
                      .frequency_penalty = given.frequency_penalty};
  const auto* biases = array_of("logit_bias", given.logit_bias, given.num_logit_bias);
  for (size_t i = 0; i < given.num_logit_bias; ++i) {
    request.logit_bias.push_back({biases[i].token, biases[i].bias});
  }
  request.min_tokens = given.min_tokens;
  request.top_logprobs = given.top_logprobs;
  request.prompt_logprobs = given.prompt_logprobs;
  const int32_t* ends = array_of("stop_token_ids", given.stop_token_ids, given.num_stop_token_ids);
  request.stop_token_ids.assign(ends, ends + given.num_stop_token_ids);
  request.bad_words = strings_of("bad_words", given.bad_words, given.num_bad_words);
  const int32_t* allowed =
      array_of("allowed_token_ids", given.allowed_token_ids, given.num_allowed_token_ids);
  request.allowed_token_ids.assign(allowed, allowed + given.num_allowed_token_ids);
  request.include_stop = given.include_stop;
  request.skip_special_tokens = given.skip_special_tokens;
  request.truncate_prompt_tokens = given.truncate_prompt_tokens;
  request.continue_final_message = given.continue_final_message;
  HEDDLE_CHECK(given.add_special_tokens >= -1 && given.add_special_tokens <= 1,
               "add_special_tokens is ", given.add_special_tokens, ", expected -1, 0 or 1");
  if (given.add_special_tokens >= 0) request.add_special_tokens = given.add_special_tokens == 1;
  request.stop = strings_of("stop", given.stop, given.num_stop);
  request.ignore_end = given.ignore_end;
  request.tools_json = string_of("tools_json", given.tools_json);
  request.documents_json = string_of("documents_json", given.documents_json);
  request.template_kwargs_json = string_of("template_kwargs_json", given.template_kwargs_json);
  request.add_generation_prompt = given.add_generation_prompt;
  request.cache_salt = string_of("cache_salt", given.cache_salt);
  request.tenant = string_of("tenant", given.tenant);
  request.tenant_weight = given.tenant_weight;
  request.priority = given.priority;
  request.speculation = string_of("speculation", given.speculation, kMaxName);
  request.prediction = string_of("prediction", given.prediction);
  request.format = format_of(given.format);
  request.thinking = {.max_tokens = given.thinking.max_tokens,
                      .begin = string_of("thinking.begin", given.thinking.begin, kMaxName),
                      .end = string_of("thinking.end", given.thinking.end, kMaxName)};
  request.values = values_of(given.values);
  return request;
}

EngineOptions options_of(heddle_string model, const heddle_engine_options& given) {
  EngineOptions options{
      .model_path = path_of("model", model),
      .device = string_of("options.device", given.device, kMaxName),
      .max_batch = given.max_batch,
      .num_threads = given.num_threads,
      .page_size = given.page_size,
      .prefill_chunk = given.prefill_chunk,
      .max_context = given.max_context,
      .kv_memory = given.kv_memory,
      .prefix_cache = given.prefix_cache,
      .kv_host_memory = given.kv_host_memory,
      .kv_cache_dir = string_of("options.kv_cache_dir", given.kv_cache_dir, kMaxPath),
      .kv_disk_memory = given.kv_disk_memory,
      .kv_disk_salted = given.kv_disk_salted,
      .admit = string_of("options.admit", given.admit, kMaxName),
      .fairness = string_of("options.fairness", given.fairness, kMaxName),
      .kv_type = string_of("options.kv_type", given.kv_type, kMaxName),
      .weights = string_of("options.weights", given.weights, kMaxName),
      .activations = string_of("options.activations", given.activations, kMaxName),
      .speculation = {.method = string_of("options.speculation.method", given.speculation.method,
                                          kMaxName),
                      .draft_model = string_of("options.speculation.draft_model",
                                               given.speculation.draft_model, kMaxPath),
                      .max_drafts = given.speculation.max_drafts,
                      .min_ngram = given.speculation.min_ngram,
                      .max_ngram = given.speculation.max_ngram,
                      .memory = given.speculation.memory},
      .adapter_memory = given.adapter_memory,
      .adapter_host_memory = given.adapter_host_memory,
      .max_batch_adapters = given.max_batch_adapters,
      .max_batch_adapter_bytes = given.max_batch_adapter_bytes,
      .generation_config =
          string_of("options.generation_config", given.generation_config, kMaxPath),
      .strict = given.strict};
  if (given.adapter_dir.data != nullptr) {
    options.adapter_dir = path_of("options.adapter_dir", given.adapter_dir);
  }
  if (given.on_load != nullptr) {
    options.on_load = [on_load = given.on_load, data = given.user_data](
                          int64_t done, int64_t total) { on_load(data, done, total); };
  }
  if (given.on_warning != nullptr) {
    options.on_warning = [on_warning = given.on_warning, data = given.user_data](
                             const std::string& warning) { on_warning(data, view_of(warning)); };
  }
  return options;
}

}  // namespace heddle::capi
