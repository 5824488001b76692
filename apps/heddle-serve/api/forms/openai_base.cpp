#include "api/forms/openai_base.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "api/answer_parts.h"
#include "generate/adapter_fields.h"

namespace heddle::serve {
namespace {

json stop_reason(const Completion& completion) {
  if (!completion.stop.empty()) return json(completion.stop);
  return completion.stop_token < 0 ? json() : json(completion.stop_token);
}

/// The word of the API: a cancelled answer is one that was cut off.
const char* finish_word(const Completion& completion) {
  if (completion.finish_reason == FinishReason::kError) return "error";  // of each_adapter alone
  return completion.finish_reason == FinishReason::kStop ? "stop" : "length";
}

/// The adapters of an entry of each_adapter by the names that the client has for them; none: the
/// base model.
AdapterList named_adapters(const EachAdapter& entry, const Request& request) {
  if (!entry.choice.adapters.empty()) return entry.choice.adapters;
  return request.adapter.empty() ? AdapterList() : AdapterList{{entry.choice.adapter_id}};
}

}  // namespace

OpenAiForm::OpenAiForm(const Generation& generation, const std::string& id,
                       const std::string& model)
    : generation_(generation),
      num_rows_(generation.prompts.size() * static_cast<size_t>(generation.best_of)) {
  head_ = {{"id", id}, {"object", ""}, {"created", std::time(nullptr)}, {"model", model}};
}

std::string OpenAiForm::end(std::span<const Completion> rows) {
  std::string bytes;
  if (generation_.include_usage) {
    JsonObject chunk = chunk_head();
    chunk["choices"].emplace_array();
    chunk["usage"] = usage(rows);
    chunk["system_fingerprint"] = fingerprint(rows);
    bytes = server_sent(chunk);
  }
  return bytes + "data: [DONE]\n\n";
}

std::string OpenAiForm::failure(const ApiError& error) {
  return "data: " + openai_error_json(error) + "\n\ndata: [DONE]\n\n";
}

HttpResponse OpenAiForm::refusal(const ApiError& error) { return openai_error(error); }

std::string OpenAiForm::whole(std::span<const Completion> rows) {
  JsonObject answer = head_;
  answer["object"] = object_name();
  JsonArray& choices = answer["choices"].emplace_array();
  for (const size_t row : told_rows(rows)) {
    JsonObject choice = whole_choice(row, rows[row]);
    choice["index"] = choices.size();
    choices.push_back(std::move(choice));
  }
  answer["usage"] = usage(rows);
  answer["system_fingerprint"] = fingerprint(rows);
  return files::json_text(answer);
}

JsonObject OpenAiForm::chunk_head() const {
  JsonObject chunk = head_;
  chunk["object"] = chunk_name();
  return chunk;
}

std::string OpenAiForm::chunk(JsonObject choice) const {
  JsonObject whole = chunk_head();
  whole["choices"].emplace_array().push_back(std::move(choice));
  if (generation_.include_usage) whole["usage"] = nullptr;
  return server_sent(whole);
}

void OpenAiForm::add_end(size_t row, const Completion& completion, JsonObject& choice) const {
  choice["finish_reason"] = finish_word(completion);
  choice["stop_reason"] = stop_reason(completion);
  if (!generation_.each.empty()) {
    const AdapterList adapters = named_adapters(generation_.each[prompt_of(row)], request(row));
    app::add_adapters(adapters, {}, choice);
    if (!completion.error.empty()) choice["error"] = completion.error;
  }
  if (!completion.adapter_digest.empty()) choice["adapter_digest"] = completion.adapter_digest;
  add_switches(completion, choice);
}

/// Which weights wrote the answers: the digest of their adapter's; null for the base model, and
/// where each answer has its own.
json OpenAiForm::fingerprint(std::span<const Completion> rows) const {
  const std::string& digest = rows.front().adapter_digest;
  return digest.empty() || !generation_.each.empty() ? json() : json(digest);
}

void OpenAiForm::add_ids(const Completion& completion, JsonObject& choice) const {
  if (generation_.return_token_ids) {
    choice["prompt_token_ids"] = files::json_array(completion.prompt_token_ids);
    choice["token_ids"] = files::json_array(completion.token_ids);
  }
  if (generation_.prompt_logprobs >= 0) {
    choice["prompt_logprobs"] = prompt_logprobs(prompt_span(completion), *completion.token_texts,
                                                static_cast<size_t>(generation_.prompt_logprobs));
  }
}

/// A prompt of several answers counts once, with what the first of them took from the cache.
JsonObject OpenAiForm::usage(std::span<const Completion> rows) const {
  int64_t prompt = 0, cached = 0, answer = 0, thoughts = 0;
  DraftCounts prediction;
  bool finds_thoughts = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i % static_cast<size_t>(generation_.best_of) == 0) {
      prompt += rows[i].prompt_tokens;
      cached += rows[i].cached_tokens;
    }
    answer += std::ssize(rows[i].token_ids);
    prediction.drafted += rows[i].prediction.drafted;
    prediction.accepted += rows[i].prediction.accepted;
    const size_t prompt_index = prompt_of(i);
    thoughts += count_thoughts(generation_, rows[i], prompt_index);
    finds_thoughts = finds_thoughts || generation_.parser_of(prompt_index).finds_reasoning;
  }
  JsonObject usage{{"prompt_tokens", prompt},
                   {"completion_tokens", answer},
                   {"total_tokens", prompt + answer},
                   {"prompt_tokens_details", JsonObject{{"cached_tokens", cached}}}};
  JsonObject details;
  if (finds_thoughts) details["reasoning_tokens"] = thoughts;
  if (generation_.has_prediction) add_prediction(prediction, details);
  if (!details.empty()) usage["completion_tokens_details"] = std::move(details);
  return usage;
}

/// Of each prompt the n answers whose tokens are the most likely, in their order.
std::vector<size_t> OpenAiForm::told_rows(std::span<const Completion> rows) const {
  std::vector<size_t> returned;
  const auto each = static_cast<size_t>(generation_.best_of);
  const auto score = [&rows](size_t row) {
    const std::vector<float>& logprobs = rows[row].logprobs;
    const float sum = std::accumulate(logprobs.begin(), logprobs.end(), 0.0f);
    return sum / static_cast<float>(std::max<size_t>(logprobs.size(), 1));
  };
  for (size_t first = 0; first < rows.size(); first += each) {
    std::vector<size_t> samples(each);
    std::iota(samples.begin(), samples.end(), first);
    if (generation_.n < generation_.best_of) {
      std::ranges::stable_sort(samples, std::ranges::greater(), score);
    }
    returned.insert(returned.end(), samples.begin(), samples.begin() + generation_.n);
  }
  return returned;
}

}  // namespace heddle::serve
