#include "api/lorax.h"

#include <array>
#include <limits>

#include "heddle/core/error.h"

#include "api/bounds.h"
#include "api/fields.h"
#include "api/forms/token_json.h"
#include "request_json/merge_fields.h"
#include "request_json/row_reader.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr const char* kLoraxWhere = "parameters";
constexpr auto kBody = std::to_array<std::string_view>({"inputs", "parameters", "stream"});
constexpr auto kAdapterParameters = std::to_array<std::string_view>(
    {"adapter_id", "adapter_source", "api_token", "merged_adapters"});
constexpr auto kParameters = std::to_array<std::string_view>({"max_new_tokens",
                                                              "do_sample",
                                                              "temperature",
                                                              "top_k",
                                                              "top_p",
                                                              "typical_p",
                                                              "repetition_penalty",
                                                              "frequency_penalty",
                                                              "presence_penalty",
                                                              "seed",
                                                              "stop",
                                                              "truncate",
                                                              "best_of",
                                                              "details",
                                                              "decoder_input_details",
                                                              "return_full_text",
                                                              "return_k_alternatives",
                                                              "ignore_eos_token",
                                                              "watermark",
                                                              "cache_salt",
                                                              "priority",
                                                              "apply_chat_template",
                                                              "response_format"});

void refuse(bool is_refused, const char* field, const char* why) {
  if (is_refused) throw bad_request(std::string(field) + ": " + why, field);
}

/// Whether it is a container without anything in it.
bool is_empty(const json& value) {
  return files::is_container(value) && files::size_of(value) == 0;
}

/// What the strategy has use for of the other fields, which are looked at in any case, as LoRAX
/// does: its clients send all of them. The seed is an addition.
AdapterMerge read_strategy(const RowReader& row) {
  using Method = AdapterMerge::Method;
  AdapterMerge merge;
  const AdapterMerge given{.density = app::merge_density(row),
                           .majority_sign = app::merge_sign(row),
                           .seed = app::merge_seed(row)};
  if (const json* strategy = row.find("merge_strategy")) {
    merge.method = merge_method(row.text("merge_strategy", *strategy));
  }
  const bool draws = merge.method == Method::kDareLinear || merge.method == Method::kDareTies;
  const bool elects = merge.method == Method::kTies || merge.method == Method::kDareTies;
  if (merge.method != Method::kLinear) merge.density = given.density;
  if (elects) merge.majority_sign = given.majority_sign;
  if (draws) merge.seed = given.seed;
  return merge;
}

/// {"ids": [...], "weights": [...], "merge_strategy": "ties", "density": 0.5}: the weights are the
/// scales.
void read_merged(const json& merged, Generation& generation) {
  HEDDLE_CHECK(merged.is_object(), "merged_adapters is ", files::json_type(merged),
               ", expected an object");
  const RowReader row(merged, "merged_adapters");
  constexpr std::string_view kFields[] = {
      "ids", "weights", "merge_strategy", "density", "majority_sign_method", "seed"};
  row.check_given_fields(kFields);
  generation.choice.merge = read_strategy(row);
  const json* ids = row.find("ids");
  HEDDLE_CHECK(ids != nullptr && ids->is_array() && files::size_of(*ids) > 0,
               "merged_adapters: ids is missing or not a list of names");
  const size_t num_ids = files::size_of(*ids);
  const json* weights = row.find("weights");
  const bool has_weights = weights != nullptr && !is_empty(*weights);
  HEDDLE_CHECK(!has_weights || (weights->is_array() && files::size_of(*weights) == num_ids),
               "merged_adapters: weights must be a list with one number for each name in ids");
  for (size_t i = 0; i < num_ids; ++i) {
    const float even = 1.0f / static_cast<float>(num_ids);
    const json* const weight = has_weights ? &weights->get_array()[i] : nullptr;
    HEDDLE_CHECK(weight == nullptr || weight->is_number(), "merged_adapters: weights holds ",
                 files::json_type(*weight), ", expected numbers");
    generation.choice.adapters.push_back(
        {row.text("ids[]", ids->get_array()[i]),
         weight != nullptr ? static_cast<float>(files::number_of(*weight)) : even});
  }
}

void read_sampling(const RowReader& row, Request& request) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  SamplingOptions& sampling = request.sampling;
  sampling.temperature = row.number("temperature", 1.0f, kLeast, 1e6);
  sampling.top_k =
      static_cast<int32_t>(row.integer("top_k", 0, 0, std::numeric_limits<int32_t>::max()));
  sampling.top_p = row.number("top_p", 1.0f, kLeast, 1.0);
  refuse(row.number("typical_p", 1.0f, kLeast, 1.0) < 1.0f, "typical_p", "only 1 is supported");
  sampling.repetition_penalty = row.number("repetition_penalty", 1.0f, kLeast, 1e6);
  sampling.frequency_penalty = row.number("frequency_penalty", 0.0f, -2.0, 2.0);
  sampling.presence_penalty = row.number("presence_penalty", 0.0f, -2.0, 2.0);
  sampling.seed = row.integer("seed", sampling.seed, 0, kMost);
  // As in LoRAX: what narrows the choice of tokens turns sampling on, too.
  const bool samples = row.flag("do_sample", false) || row.find("temperature") != nullptr ||
                       row.find("top_k") != nullptr || row.find("top_p") != nullptr;
  if (!samples) sampling.temperature = 0.0f;
}

class LoraxForm final : public AnswerForm {
 public:
  LoraxForm(const LoraxGeneration& request, bool in_list) : request_(request), in_list_(in_list) {}

  std::string added(size_t, const Event& event) override {
    std::string bytes;
    const DrawnTokens& tokens = event.tokens;
    const size_t count = tokens.ids.size();
    for (size_t i = 0; i < count; ++i) {
      JsonObject message{{"token", token(span_of(tokens), i, *event.token_texts)},
                         {"generated_text", nullptr},
                         {"details", nullptr}};
      const bool is_last = event.completion && i + 1 == count;
      if (is_last) add_end(*event.completion, message);
      bytes += "data:" + files::json_text(message) + "\n\n";
    }
    if (event.completion && count == 0) {  // the end token alone
      JsonObject message{{"token", {{"id", 0}, {"text", ""}, {"logprob", 0.0}, {"special", true}}}};
      add_end(*event.completion, message);
      bytes += "data:" + files::json_text(message) + "\n\n";
    }
    return bytes;
  }

  std::string end(std::span<const Completion>) override { return {}; }
  std::string failure(const ApiError& error) override {
    return "data:" + lorax_error(error).body + "\n\n";
  }
  HttpResponse refusal(const ApiError& error) override { return lorax_error(error); }

  std::string whole(std::span<const Completion> rows) override {
    const Completion& best = *std::ranges::max_element(rows, {}, [](const Completion& row) {
      float sum = 0;
      for (const float logprob : row.logprobs) sum += logprob;
      return sum;
    });
    JsonObject answer{{"generated_text", text_of(best)}};
    if (request_.details) {
      JsonObject& more = answer["details"].emplace_object() = details(best);
      if (rows.size() > 1) {
        JsonArray& others = more["best_of_sequences"].emplace_array();
        for (const Completion& row : rows) {
          if (&row == &best) continue;
          JsonObject other = details(row);
          other["generated_text"] = text_of(row);
          others.push_back(std::move(other));
        }
      }
    }
    const std::string text = files::json_text(answer);
    return in_list_ ? '[' + text + ']' : text;
  }

 private:
  std::string text_of(const Completion& completion) const {
    const Generation& generation = request_.generation;
    const std::string& prompt = generation.prompts.front().text.value_or(generation.echoed);
    return (request_.returns_prompt ? prompt : "") + completion.text;
  }

  JsonObject token(const TokenSpan& tokens, size_t i, const TokenTexts& texts) const {
    const auto entry = [&texts](int32_t id, float logprob) {
      return JsonObject{{"id", id},
                        {"text", texts.bytes(id)},
                        {"logprob", logprob_number(logprob)},
                        {"special", texts.is_special(id)}};
    };
    JsonObject one = entry(tokens.ids[i], tokens.logprobs[i]);
    const size_t each = tokens.top_ids.size() / tokens.ids.size();
    if (each == 0) return one;
    JsonArray& others = one["alternative_tokens"].emplace_array();
    for (size_t j = i * each; j < (i + 1) * each; ++j) {
      others.push_back(entry(tokens.top_ids[j], tokens.top_logprobs[j]));
    }
    return one;
  }

  const char* finish_word(const Completion& completion) const {
    if (completion.finish_reason != FinishReason::kStop) return "length";
    return completion.stop.empty() ? "eos_token" : "stop_sequence";
  }

  JsonObject short_details(const Completion& completion) const {
    const Request& request = request_.generation.prompts.front();
    const bool samples = request.sampling.temperature > 0;
    JsonObject details{{"finish_reason", finish_word(completion)},
                       {"prompt_tokens", completion.prompt_tokens},
                       {"generated_tokens", completion.token_ids.size()},
                       {"seed", samples ? json(request.sampling.seed) : json()}};
    if (!completion.adapter_digest.empty()) details["adapter_digest"] = completion.adapter_digest;
    add_switches(completion, details);
    return details;
  }

  void add_end(const Completion& completion, JsonObject& message) const {
    message["generated_text"] = text_of(completion);
    message["details"] = short_details(completion);
  }

  JsonObject details(const Completion& completion) const {
    JsonObject all = short_details(completion);
    const TokenTexts& texts = *completion.token_texts;
    JsonArray& prefill = all["prefill"].emplace_array();
    if (request_.prefill) {
      for (size_t i = 0; i < completion.prompt_token_ids.size(); ++i) {
        const int32_t id = completion.prompt_token_ids[i];
        prefill.push_back(JsonObject{
            {"id", id},
            {"text", texts.bytes(id)},
            {"logprob", i == 0 ? json() : json(logprob_number(completion.prompt_logprobs[i]))}});
      }
    }
    JsonArray& tokens = all["tokens"].emplace_array();
    for (size_t i = 0; i < completion.token_ids.size(); ++i) {
      tokens.push_back(token(answer_span(completion), i, texts));
    }
    return all;
  }

  LoraxGeneration request_;
  bool in_list_;
};

}  // namespace

json take_parameters(json& body, std::span<const std::string_view> more,
                     const app::ServeOptions& options, Generation& generation) {
  json parameters = take(body, kLoraxWhere);
  if (parameters.is_null()) parameters.emplace_object();
  HEDDLE_CHECK(parameters.is_object(), kLoraxWhere, " is ", files::json_type(parameters),
               ", expected an object");
  check_fields(parameters, kAdapterParameters, more, options.ignore_unknown_fields,
               generation.ignored);
  const RowReader row(parameters, kLoraxWhere);
  if (const json* id = row.find("adapter_id")) {
    generation.choice.adapter_id = row.text("adapter_id", *id);
  }
  generation.choice.from = read_source(row);
  if (const json* merged = row.find("merged_adapters")) read_merged(*merged, generation);
  return parameters;
}

LoraxGeneration read_lorax(const std::string& text, const app::ServeOptions& options) {
  constexpr int64_t kDefaultTokens = 20, kMost = std::numeric_limits<int64_t>::max();
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  LoraxGeneration lorax;
  Generation& generation = lorax.generation;
  check_fields(body, kBody, {}, options.ignore_unknown_fields, generation.ignored);
  Request request;
  const RowReader outer(body, "request");
  request.text = outer.required_text("inputs");
  generation.stream = outer.flag("stream", false);
  const json parameters = take_parameters(body, kParameters, options, generation);
  const RowReader row(parameters, kLoraxWhere);
  refuse(row.flag("watermark", false), "watermark",
         "answers are not watermarked; only false is accepted");
  read_format(row, generation, request);
  request.max_tokens = row.integer("max_new_tokens", kDefaultTokens, 1, kMost);
  request.sampling.seed = random_seed();
  read_sampling(row, request);
  request.stop = row.stop_strings({});
  check_count(request.stop.size(), options.limits.stop_strings, "stop", "--max-stop-strings");
  request.truncate_prompt_tokens = row.integer("truncate", 0, 0, kMost);
  request.ignore_end = row.flag("ignore_eos_token", false);
  request.cache_salt = row.optional_text("cache_salt");
  generation.priority = read_priority(row);
  request.skip_special_tokens = true;
  request.tell_tokens = true;
  request.top_logprobs =
      static_cast<int32_t>(row.integer("return_k_alternatives", 0, 0, options.limits.top_logprobs));
  generation.best_of = row.integer("best_of", 1, 1, std::max<int64_t>(options.limits.n, 1));
  generation.n = generation.best_of;
  lorax.details = row.flag("details", false);
  lorax.prefill = row.flag("decoder_input_details", false);
  lorax.returns_prompt = row.flag("return_full_text", false);
  generation.echo = lorax.returns_prompt;
  request.prompt_logprobs = lorax.prefill;
  HEDDLE_CHECK(!(generation.stream && generation.best_of > 1), "best_of must be 1 in a stream");
  HEDDLE_CHECK(!(generation.stream && lorax.prefill), "decoder_input_details cannot be streamed");
  if (row.flag("apply_chat_template", false)) {
    request.messages = {{"user", *request.text}};
    request.text.reset();
  }
  generation.prompts.push_back(std::move(request));
  return lorax;
}

std::unique_ptr<AnswerForm> lorax_form(const LoraxGeneration& request, bool in_list) {
  return std::make_unique<LoraxForm>(request, in_list);
}

}  // namespace heddle::serve
