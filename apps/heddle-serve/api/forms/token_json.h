#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "heddle/engine/request.h"

#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::serve {

using json = files::Json;
using files::JsonArray;
using files::JsonObject;

/// "data: <json>\n\n"
[[nodiscard]] std::string server_sent(const JsonObject& value);

/// A log-probability; one that JSON has no number for is -9999.0, as in OpenAI's API.
[[nodiscard]] double logprob_number(float logprob);

/// Tokens one after another with their log-probabilities, of an answer or a prompt.
struct TokenSpan {
  std::span<const int32_t> ids;
  std::span<const float> logprobs;   // [ids.size()]; NaN: none
  std::span<const int32_t> top_ids;  // [ids.size() * tops]; -1: none
  std::span<const float> top_logprobs;
};
[[nodiscard]] TokenSpan span_of(const DrawnTokens& tokens);
[[nodiscard]] TokenSpan answer_span(const Completion& completion);
[[nodiscard]] TokenSpan prompt_span(const Completion& completion);

/// What names a token in an answer.
struct TokenNames {
  const TokenTexts& texts;
  bool are_ids = false;  // "token_id:42", as vLLM has it, in place of texts
};

/// Chat: [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...], with `num_tops` of these.
[[nodiscard]] JsonArray chat_logprobs(const TokenSpan& tokens, const TokenNames& names,
                                      size_t num_tops);

/// Completions: appends to {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, and moves
/// `offset`, in characters, after the tokens. A token that is a part of a character is
/// "bytes:\xe2\x80", as in OpenAI's API. Of tokens with one text in one place the one that was
/// drawn has it as its name, else the most likely one, and others are "token_id:42".
void add_completion_logprobs(const TokenSpan& tokens, const TokenNames& names, size_t num_tops,
                             int64_t& offset, json& lists);

/// vLLM's prompt_logprobs: [null, {"id": {"logprob", "rank", "decoded_token"}}, ...].
[[nodiscard]] JsonArray prompt_logprobs(const TokenSpan& tokens, const TokenTexts& texts,
                                        size_t num_tops);

/// "adapter_switches": [{"position", "token", "before"}, ...], where the request went on with other
/// weights; "before" is the digest until then.
void add_switches(const Completion& completion, JsonObject& answer);
/// What became of a prediction's tokens, to the details of usage.
void add_prediction(const DraftCounts& counts, JsonObject& details);

}  // namespace heddle::serve
