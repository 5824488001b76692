#include "api/token_json.h"

#include <algorithm>
#include <cmath>

namespace heddle::serve {
namespace {

constexpr double kNoLogprob = -9999.0;

std::string text_of(int32_t id, const TokenTexts& texts) { return std::string(texts.bytes(id)); }

JsonArray bytes_of(std::string_view text) {
  JsonArray bytes;
  bytes.reserve(text.size());
  for (const char c : text) bytes.emplace_back(static_cast<unsigned char>(c));
  return bytes;
}

/// Characters of UTF-8.
int64_t num_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

/// How many most likely tokens there are at each place.
size_t tops_each(const TokenSpan& tokens) {
  return tokens.ids.empty() ? 0 : tokens.top_ids.size() / tokens.ids.size();
}

}  // namespace

std::string server_sent(const JsonObject& value) {
  std::string event = "data: ";
  files::append_json(event, value);
  return event += "\n\n";
}

double logprob_number(float logprob) {
  return std::isfinite(logprob) ? double{logprob} : kNoLogprob;
}

TokenSpan span_of(const DrawnTokens& tokens) {
  return {tokens.ids, tokens.logprobs, tokens.top_ids, tokens.top_logprobs};
}

TokenSpan answer_span(const Completion& completion) {
  return {completion.token_ids, completion.logprobs, completion.top_token_ids,
          completion.top_logprobs};
}

TokenSpan prompt_span(const Completion& completion) {
  return {completion.prompt_token_ids, completion.prompt_logprobs, completion.prompt_top_token_ids,
          completion.prompt_top_logprobs};
}

JsonArray chat_logprobs(const TokenSpan& tokens, const TokenTexts& texts, size_t num_tops) {
  JsonArray content;
  const auto entry = [&texts](int32_t id, float logprob) {
    const std::string text = text_of(id, texts);
    return JsonObject{
        {"token", text}, {"logprob", logprob_number(logprob)}, {"bytes", bytes_of(text)}};
  };
  const size_t each = tops_each(tokens);
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    JsonObject token = entry(tokens.ids[i], tokens.logprobs[i]);
    JsonArray& tops = token["top_logprobs"].emplace_array();
    for (size_t j = i * each; j < i * each + std::min(each, num_tops); ++j) {
      tops.push_back(entry(tokens.top_ids[j], tokens.top_logprobs[j]));
    }
    content.push_back(std::move(token));
  }
  return content;
}

void add_completion_logprobs(const TokenSpan& tokens, const TokenTexts& texts, size_t num_tops,
                             int64_t& offset, json& lists) {
  if (lists.is_null()) {
    JsonObject& empty = lists.emplace_object();
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      empty.emplace(list, JsonArray());
    }
  }
  const auto list = [&](const char* name) -> JsonArray& { return lists.at(name).as_array(); };
  const size_t each = tops_each(tokens);
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const std::string text = text_of(tokens.ids[i], texts);
    const bool has_none = i >= tokens.logprobs.size() || std::isnan(tokens.logprobs[i]);
    list("tokens").emplace_back(text);
    list("token_logprobs").push_back(has_none ? json() : json(logprob_number(tokens.logprobs[i])));
    list("text_offset").emplace_back(offset);
    json tops;
    if (!has_none) {
      JsonObject& best = tops.emplace_object();
      for (size_t j = i * each; j < i * each + std::min(each, num_tops); ++j) {
        if (tokens.top_ids[j] < 0) continue;
        best.emplace(text_of(tokens.top_ids[j], texts), logprob_number(tokens.top_logprobs[j]));
      }
      best.emplace(text, logprob_number(tokens.logprobs[i]));  // where it is none of them
    }
    list("top_logprobs").push_back(std::move(tops));
    offset += num_characters(text);
  }
}

JsonArray prompt_logprobs(const TokenSpan& tokens, const TokenTexts& texts, size_t num_tops) {
  JsonArray places;
  const size_t each = tops_each(tokens);
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (std::isnan(tokens.logprobs[i])) {
      places.emplace_back(nullptr);
      continue;
    }
    JsonObject place;
    const auto add = [&](int32_t id, float logprob, const json& rank) {
      place.emplace(std::to_string(id), JsonObject{{"logprob", logprob_number(logprob)},
                                                   {"rank", rank},
                                                   {"decoded_token", text_of(id, texts)}});
    };
    for (size_t j = 0; j < std::min(each, num_tops); ++j) {
      add(tokens.top_ids[i * each + j], tokens.top_logprobs[i * each + j], j + 1);
    }
    add(tokens.ids[i], tokens.logprobs[i], nullptr);  // where it is none of them
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace heddle::serve
