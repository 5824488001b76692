#include "request_json/sampling_fields.h"

#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using files::json_type;
using json = files::Json;

constexpr int32_t kMaxToken = std::numeric_limits<int32_t>::max();

/// {"50256": -100, ...}
void read_biases(const RowReader& row, std::vector<TokenBias>& biases) {
  const json* value = row.find("logit_bias");
  if (value == nullptr) return;
  HEDDLE_CHECK(value->is_object(), row.where(), ": logit_bias is ", json_type(*value),
               ", expected an object of token ids and numbers");
  biases.clear();
  for (const auto& entry : value->get_object()) {
    const std::string key(entry.key());
    int32_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    HEDDLE_CHECK(error == std::errc() && end == key.data() + key.size() && token >= 0, row.where(),
                 ": logit_bias holds ", quote(key), ", expected a token id");
    const RowReader reader(*value, row.where() + ": logit_bias");
    biases.push_back({token, reader.number(key.c_str(), 0.0f, -100.0, 100.0)});
  }
}

void read_token_ids(const RowReader& row, std::vector<int32_t>& ids) {
  const json* value = row.array("stop_token_ids", "token ids");
  if (value == nullptr) return;
  ids = token_ids_of(*value, row.where() + ": stop_token_ids");
}

void read_bad_words(const RowReader& row, std::vector<std::string>& words) {
  const json* value = row.array("bad_words", "strings");
  if (value == nullptr) return;
  words.clear();
  for (const json& word : value->get_array()) {
    words.push_back(row.text("bad_words[]", word));
    HEDDLE_CHECK(!words.back().empty(), row.where(), ": bad_words holds an empty string");
  }
}

}  // namespace

void read_sampling_fields(const RowReader& row, Request& request) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr float kLeast = std::numeric_limits<float>::min();
  request.max_tokens = row.integer("max_tokens", request.max_tokens, 0, kMax);
  SamplingOptions& sampling = request.sampling;
  sampling.temperature = row.number("temperature", sampling.temperature, 0.0, 1e6);
  sampling.top_k = static_cast<int32_t>(row.integer("top_k", sampling.top_k, 0, kMaxToken));
  sampling.top_p = row.number("top_p", sampling.top_p, kLeast, 1.0);
  sampling.min_p = row.number("min_p", sampling.min_p, 0.0, 1.0);
  sampling.seed = row.integer("seed", sampling.seed, std::numeric_limits<int64_t>::min(), kMax);
  sampling.repetition_penalty =
      row.number("repetition_penalty", sampling.repetition_penalty, kLeast, 1e6);
  sampling.frequency_penalty =
      row.number("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0);
  sampling.presence_penalty = row.number("presence_penalty", sampling.presence_penalty, -2.0, 2.0);
  request.stop = row.stop_strings(request.stop);
  read_biases(row, request.logit_bias);
  request.min_tokens = row.integer("min_tokens", request.min_tokens, 0, kMax);
  HEDDLE_CHECK(request.min_tokens <= request.max_tokens, row.where(), ": min_tokens is ",
               request.min_tokens, ", expected 0 to max_tokens = ", request.max_tokens);
  read_token_ids(row, request.stop_token_ids);
  read_bad_words(row, request.bad_words);
  request.top_logprobs =
      static_cast<int32_t>(row.integer("top_logprobs", request.top_logprobs, 0, 100));
  request.prompt_logprobs = row.flag("prompt_logprobs", request.prompt_logprobs);
}

}  // namespace heddle::app
