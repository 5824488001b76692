#include "engine/request_check.h"

#include <cmath>

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
}

}  // namespace

void check_answer_fields(const Request& request) {
  HEDDLE_CHECK(request.max_tokens >= 1, "max_tokens is ", request.max_tokens,
               ", expected at least 1");
  check_sampling(request.sampling);
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string& stop = request.stop[i];
    HEDDLE_CHECK(!stop.empty(), "stop[", i, "] is empty, expected at least one character");
    HEDDLE_CHECK(tokenizer::replace_invalid_utf8(stop) == stop, "stop[", i,
                 "] is no UTF-8, which all answers are");
  }
}

void check_chat_fields(const Request& request) {
  HEDDLE_CHECK(request.messages.empty() || request.messages_json.empty(),
               "a request has messages and messages_json, expected one of them");
  const bool is_chat = !request.messages.empty() || !request.messages_json.empty();
  const std::pair<const char*, bool> fields[] = {
      {"tools_json", !request.tools_json.empty()},
      {"documents_json", !request.documents_json.empty()},
      {"template_kwargs_json", !request.template_kwargs_json.empty()},
      {"add_generation_prompt = false", !request.add_generation_prompt}};
  for (const auto& [name, is_given] : fields) {
    HEDDLE_CHECK(is_chat || !is_given, "a request has ", name,
                 ", which is for a conversation, and no messages");
  }
}

}  // namespace heddle
