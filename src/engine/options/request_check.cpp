#include "engine/options/request_check.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "tokenizer/utf8.h"

namespace heddle {
namespace {

// Comparisons are written so that NaN fails them.
void check_sampling(const SamplingOptions& sampling) {
  HEDDLE_CHECK(sampling.temperature >= 0.0f && std::isfinite(sampling.temperature),
               "temperature is ", sampling.temperature,
               ", expected a finite number of at least 0 (0: the most likely token)");
  HEDDLE_CHECK(sampling.top_k >= 0, "top_k is ", sampling.top_k,
               ", expected at least 0 (0: all tokens)");
  HEDDLE_CHECK(sampling.top_p > 0.0f && sampling.top_p <= 1.0f, "top_p is ", sampling.top_p,
               ", expected above 0 and up to 1 (1: all tokens)");
  HEDDLE_CHECK(sampling.min_p >= 0.0f && sampling.min_p <= 1.0f, "min_p is ", sampling.min_p,
               ", expected 0 to 1 (0: all tokens)");
  HEDDLE_CHECK(sampling.repetition_penalty > 0.0f && std::isfinite(sampling.repetition_penalty),
               "repetition_penalty is ", sampling.repetition_penalty,
               ", expected a finite number above 0 (1: off)");
  for (const auto& [name, penalty] : {std::pair("presence_penalty", sampling.presence_penalty),
                                      std::pair("frequency_penalty", sampling.frequency_penalty)}) {
    HEDDLE_CHECK(penalty >= -2.0f && penalty <= 2.0f, name, " is ", penalty,
                 ", expected -2 to 2 (0: off)");
  }
}

/// That the token is one of the vocabulary is for those to check who know that.
void check_token(const char* field, int32_t token) {
  HEDDLE_CHECK(token >= 0, field, " has token ", token, ", expected at least 0");
}

void check_text(const char* field, size_t i, const std::string& text) {
  HEDDLE_CHECK(!text.empty(), field, "[", i, "] is empty, expected at least one character");
  HEDDLE_CHECK(tokenizer::replace_invalid_utf8(text) == text, field, "[", i, "] is not UTF-8");
}

void check_biases(const std::vector<TokenBias>& biases) {
  std::vector<int32_t> tokens;
  for (const auto& [token, bias] : biases) {
    check_token("logit_bias", token);
    HEDDLE_CHECK(bias >= -100.0f && bias <= 100.0f, "logit_bias of token ", token, " is ", bias,
                 ", expected -100 to 100");
    tokens.push_back(token);
  }
  std::ranges::sort(tokens);
  const auto twice = std::ranges::adjacent_find(tokens);
  HEDDLE_CHECK(twice == tokens.end(), "logit_bias has token ", *twice, " twice");
}

}  // namespace

void check_answer_fields(const Request& request) {
  HEDDLE_CHECK(request.max_tokens >= 0, "max_tokens is ", request.max_tokens,
               ", expected at least 0 (0: the prompt's log-probabilities)");
  HEDDLE_CHECK(request.top_logprobs >= 0 && request.top_logprobs <= kMaxTopLogprobs,
               "top_logprobs is ", request.top_logprobs, ", expected 0 to ", kMaxTopLogprobs);
  check_sampling(request.sampling);
  HEDDLE_CHECK(request.min_tokens >= 0 && request.min_tokens <= request.max_tokens,
               "min_tokens is ", request.min_tokens,
               ", expected 0 to max_tokens = ", request.max_tokens);
  check_biases(request.logit_bias);
  for (const int32_t token : request.stop_token_ids) check_token("stop_token_ids", token);
  for (const int32_t token : request.allowed_token_ids) check_token("allowed_token_ids", token);
  HEDDLE_CHECK(request.truncate_prompt_tokens >= 0, "truncate_prompt_tokens is ",
               request.truncate_prompt_tokens, ", expected at least 0 (0: all)");
  for (size_t i = 0; i < request.stop.size(); ++i) check_text("stop", i, request.stop[i]);
  for (size_t i = 0; i < request.bad_words.size(); ++i) {
    check_text("bad_words", i, request.bad_words[i]);
  }
}

void check_chat_fields(const Request& request) {
  HEDDLE_CHECK(request.messages.empty() || request.messages_json.empty(),
               "a request has messages and messages_json, expected only one of them");
  const bool is_chat = !request.messages.empty() || !request.messages_json.empty();
  const std::pair<const char*, bool> fields[] = {
      {"tools_json", !request.tools_json.empty()},
      {"documents_json", !request.documents_json.empty()},
      {"template_kwargs_json", !request.template_kwargs_json.empty()},
      {"add_generation_prompt = false", !request.add_generation_prompt},
      {"continue_final_message", request.continue_final_message}};
  for (const auto& [name, is_given] : fields) {
    HEDDLE_CHECK(is_chat || !is_given, "a request has ", name,
                 " but no messages; it applies only to conversations");
  }
}

std::vector<RequestVariant> sample_variants(int64_t n) {
  constexpr int64_t kMost = 128;
  HEDDLE_CHECK(n >= 1 && n <= kMost, "n is ", n, ", expected 1 to ", kMost);
  std::vector<RequestVariant> variants(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) variants[static_cast<size_t>(i)].seed_offset = i;
  return variants;
}

}  // namespace heddle
