#include "api/forms/token_json.h"

#include <algorithm>
#include <cmath>
#include <sstream>

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

/// The bytes of the character that the text begins with; 0: they are none of UTF-8.
size_t character_size(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  // No longer form than needed, no surrogates, nothing above U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string id_name(int32_t id) { return "token_id:" + std::to_string(id); }

/// "bytes:\\xe2\\x80" for bytes that are a part of a character.
std::string byte_name(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    name += "\\x";
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

/// The token's name in lists where JSON has no bytes.
std::string name_of(int32_t id, const TokenNames& names) {
  if (names.are_ids) return id_name(id);
  const std::string text = text_of(id, names.texts);
  return is_utf8(text) ? text : byte_name(text);
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

JsonArray chat_logprobs(const TokenSpan& tokens, const TokenNames& names, size_t num_tops) {
  JsonArray content;
  const auto entry = [&names](int32_t id, float logprob) {
    const std::string text = text_of(id, names.texts);
    return JsonObject{{"token", names.are_ids ? id_name(id) : text},
                      {"logprob", logprob_number(logprob)},
                      {"bytes", bytes_of(text)}};
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

void add_completion_logprobs(const TokenSpan& tokens, const TokenNames& names, size_t num_tops,
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
    const int32_t drawn = tokens.ids[i];
    const std::string name = name_of(drawn, names);
    const bool has_none = i >= tokens.logprobs.size() || std::isnan(tokens.logprobs[i]);
    list("tokens").emplace_back(name);
    list("token_logprobs").push_back(has_none ? json() : json(logprob_number(tokens.logprobs[i])));
    list("text_offset").emplace_back(offset);
    json tops;
    if (!has_none) {
      JsonObject& best = tops.emplace_object();
      for (size_t j = i * each; j < i * each + std::min(each, num_tops); ++j) {
        const int32_t id = tokens.top_ids[j];
        if (id < 0) continue;
        std::string key = name_of(id, names);
        const bool is_taken = id != drawn && (key == name || best.contains(key));
        if (is_taken) key = id_name(id);
        best.emplace(key, logprob_number(tokens.top_logprobs[j]));
      }
      best.emplace(name, logprob_number(tokens.logprobs[i]));  // where it is none of them
    }
    list("top_logprobs").push_back(std::move(tops));
    offset += num_characters(names.texts.bytes(drawn));
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

void add_switches(const Completion& completion, JsonObject& answer) {
  if (completion.adapter_switches.empty()) return;
  JsonArray& list = answer["adapter_switches"].emplace_array();
  std::istringstream digests(completion.earlier_digests);
  for (const auto& [position, token] : completion.adapter_switches) {
    std::string before;
    digests >> before;
    list.push_back(JsonObject{{"position", position}, {"token", token}, {"before", before}});
  }
}

void add_prediction(const DraftCounts& counts, JsonObject& details) {
  details["accepted_prediction_tokens"] = counts.accepted;
  details["rejected_prediction_tokens"] = counts.drafted - counts.accepted;
}

}  // namespace heddle::serve
