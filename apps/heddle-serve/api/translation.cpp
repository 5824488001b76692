#include "api/translation.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "api/api_error.h"
#include "api/fields.h"
#include "api/openai_request.h"
#include "files/json_text.h"
#include "request_json/nearest.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

constexpr auto kFurther = std::to_array<std::string_view>({"lora",
                                                           "merge",
                                                           "adapter_id",
                                                           "adapter_source",
                                                           "api_token",
                                                           "top_k",
                                                           "min_p",
                                                           "seed",
                                                           "repetition_penalty",
                                                           "presence_penalty",
                                                           "frequency_penalty",
                                                           "logit_bias",
                                                           "min_tokens",
                                                           "ignore_eos",
                                                           "stop_token_ids",
                                                           "include_stop_str_in_output",
                                                           "skip_special_tokens",
                                                           "allowed_token_ids",
                                                           "bad_words",
                                                           "request_id",
                                                           "cache_salt",
                                                           "priority",
                                                           "structured_outputs",
                                                           "speculation",
                                                           "prediction",
                                                           "thinking_token_budget",
                                                           "chat_template",
                                                           "chat_template_kwargs",
                                                           "documents"});

bool is_word(std::span<const std::string_view> words, std::string_view name) {
  return std::ranges::find(words, name) != words.end();
}

std::string listed(std::span<const std::string_view> words) {
  std::string list;
  for (const std::string_view word : words) {
    if (!list.empty()) list += word == words.back() ? " or " : ", ";
    list += app::quote(word);
  }
  return list;
}

/// Of the body itself the field is what is wrong, of an object in it the object.
[[noreturn]] void refuse_member(const std::string& where, std::string_view name,
                                const std::string& what) {
  throw bad_request(where + ": " + std::string(name) + what,
                    where == kBodyName ? std::string(name) : where);
}

const json& required(const json& object, std::string_view name, const std::string& where) {
  const json* const value = files::find_given(object, name);
  if (value == nullptr) refuse_member(where, name, " is missing");
  return *value;
}

}  // namespace

std::span<const std::string_view> further_fields() { return kFurther; }

void refuse_at(const std::string& where, const std::string& what) {
  throw bad_request(where + ": " + what, where);
}

std::string place_in(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

std::string_view text_in(const json& object, std::string_view name, const std::string& where) {
  const json& value = required(object, name, where);
  if (!value.is_string()) {
    refuse_member(where, name,
                  std::string(" is ") + files::json_kind(value) + ", expected a string");
  }
  return files::text_of(value);
}

const JsonArray& list_in(const json& object, std::string_view name, const std::string& where) {
  const json& value = required(object, name, where);
  if (!value.is_array()) {
    refuse_member(where, name, std::string(" is ") + files::json_kind(value) + ", expected a list");
  }
  return value.get_array();
}

int64_t count_in(const json& object, std::string_view name, const std::string& where) {
  const json& value = required(object, name, where);
  const auto count = files::integer_in(value, 1, std::numeric_limits<int64_t>::max());
  if (!count) {
    refuse_member(
        where, name,
        " is " + app::shown(files::json_text(value)) + ", expected a whole number of at least 1");
  }
  return *count;
}

void check_is_object(const json& value, const std::string& where) {
  if (!value.is_object()) {
    throw bad_request(where + " is " + files::json_kind(value) + ", expected an object", where);
  }
}

std::string_view word_in(const json& object, std::string_view name, const std::string& where,
                         std::span<const std::string_view> words) {
  const std::string_view word = text_in(object, name, where);
  if (!is_word(words, word)) {
    refuse_member(where, name, " is " + app::quote(word) + ", expected " + listed(words));
  }
  return word;
}

std::string_view given_word_in(const json& object, std::string_view name, const std::string& where,
                               std::span<const std::string_view> words) {
  return files::find_given(object, name) == nullptr ? std::string_view()
                                                    : word_in(object, name, where, words);
}

bool flag_in(const json& object, std::string_view name, const std::string& where) {
  const json* const value = files::find_given(object, name);
  if (value == nullptr) return false;
  if (!value->is_bool()) {
    refuse_member(where, name,
                  std::string(" is ") + files::json_kind(*value) + ", expected true or false");
  }
  return value->get_bool();
}

Translation::Translation(const app::ServeOptions& options) : options_(options) {
  chat_->emplace_object();
}

void Translation::ignore(const std::string& name) { add_ignored(ignored_, name); }

void Translation::take_passive(json& body, std::span<const PassiveField> table) {
  for (const PassiveField& field : table) {
    const std::string name(field.name);
    const json value = take(body, name.c_str());
    if (value.is_null()) continue;
    if (!is_accepted(field, value))
      throw bad_request(name + ": " + std::string(field.refusal), name);
    if (is_hint(field)) ignore(name);
  }
}

void Translation::check_body(json& body, std::span<const std::string_view> known) {
  check_fields(body, known, kFurther, options_.ignore_unknown_fields, ignored_);
}

void Translation::take_further(const json& body) {
  for (const std::string_view name : kFurther) {
    if (const json* const value = files::find_given(body, name)) chat()[name] = *value;
  }
}

void Translation::check_members(const json& object, const std::string& where,
                                const std::string& path, const Members& members) {
  for (const auto& member : object.get_object()) {
    const std::string_view name = member.key();
    if (member.value().is_null() || is_word(members.known, name)) continue;
    if (!is_word(members.ignored, name) && !options_.ignore_unknown_fields) {
      refuse_at(where,
                "unknown field " + app::quote(name) + app::did_you_mean(name, members.known));
    }
    ignore(path + "." + std::string(name));
  }
}

Generation Translation::read(FieldNames names) {
  try {
    Generation generation = read_chat(std::move(chat_), options_);
    generation.may_ignore_bound = true;
    for (std::string& name : generation.ignored) name = name_in(names, std::move(name));
    for (const std::string& name : ignored_) add_ignored(generation.ignored, name);
    generation.format_field = name_in(names, std::move(generation.format_field));
    return generation;
  } catch (const app::FieldError& error) {
    throw error_in(names, error);
  }
}

std::string name_in(FieldNames names, std::string field) {
  for (const auto& [name, own] : names) {
    const size_t at = field.find(name);
    if (at != std::string::npos) field.replace(at, name.size(), own);
  }
  return field;
}

app::FieldError error_in(FieldNames names, const app::FieldError& error) {
  std::string what = error.what();
  const std::string field = name_in(names, error.field());
  const size_t at = what.find(error.field());
  if (!error.field().empty() && at != std::string::npos) {
    what.replace(at, error.field().size(), field);
  }
  return {field, what, error.code()};
}

void Texts::add(std::string_view text) { texts_.emplace_back(text); }

void Texts::add(const Texts& others) {
  texts_.insert(texts_.end(), others.texts_.begin(), others.texts_.end());
}

json Texts::content() const {
  if (texts_.empty()) return json("");
  if (texts_.size() == 1) return json(texts_.front());
  JsonArray parts;
  for (const std::string& text : texts_) {
    parts.push_back(JsonObject{{"type", "text"}, {"text", text}});
  }
  return parts;
}

std::string Texts::joined() const {
  std::string all;
  for (const std::string& text : texts_) all += text;
  return all;
}

Texts read_texts(const json& content, const std::string& where, const char* elements,
                 FunctionRef<void(const json&, const std::string&, Texts&)> add) {
  Texts texts;
  if (content.is_string()) {
    texts.add(files::text_of(content));
    return texts;
  }
  if (!content.is_array()) {
    throw bad_request(
        where + " is " + files::json_kind(content) + ", expected a string or a list of " + elements,
        where);
  }
  const JsonArray& list = content.get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = place_in(where, i);
    check_is_object(list[i], place);
    add(list[i], place, texts);
  }
  return texts;
}

}  // namespace heddle::serve
