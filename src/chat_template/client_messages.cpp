#include "chat_template/client_messages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_value.h"

namespace heddle::chat_template {
namespace {

using files::Json;
using files::JsonArray;
using files::JsonObject;
using files::JsonTree;

constexpr size_t kMaxDepth = 100;  // of arguments; deeper ones stay text

Json* find_member(Json& value, std::string_view key) {
  JsonObject* const object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

/// The texts of parts with a newline between them; nothing where one is no text.
std::optional<std::string> joined(const JsonArray& parts) {
  std::string all;
  bool is_first = true;
  for (const Json& part : parts) {
    const Json* const text = files::find_member(part, "text");
    if (text == nullptr || !text->is_string()) return std::nullopt;
    if (!std::exchange(is_first, false)) all += '\n';
    all += files::text_of(*text);
  }
  return all;
}

/// Makes content that is text [{"type": "text", "text": ...}], and null [].
void put_in_parts(Json& content) {
  std::optional<std::string> text;
  if (content.is_string()) text = files::text_of(content);
  JsonArray& parts = content.emplace_array();
  if (!text) return;
  JsonObject& part = parts.emplace_back(nullptr).emplace_object();
  part.emplace("type", "text");
  part.emplace("text", *text);
}

void adapt_content(JsonObject& message, const TemplateFacts& facts) {
  const bool knows_parts_alone = facts.iterates_content && !facts.tests_strings;
  Json& content = message["content"];
  if (knows_parts_alone && (content.is_null() || content.is_string())) {
    put_in_parts(content);
  } else if (content.is_null()) {
    content.emplace_string();
  } else if (content.is_array() && !facts.iterates_content) {
    if (const auto text = joined(content.get_array())) content = *text;
  }
}

/// The JSON object that the text is; null: it is none.
JsonTree object_of(std::string_view text) {
  JsonTree none;
  if (text.empty()) {
    none->emplace_object();
    return none;
  }
  try {
    JsonTree value = files::parse_json(text, "arguments", {.depth = kMaxDepth});
    if (value->is_object()) return value;
  } catch (const Error&) {  // a model wrote it: it may be anything
  }
  return none;
}

void adapt_calls(JsonObject& message, size_t place, std::vector<ArgumentText>& replaced) {
  Json* const calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  JsonArray& list = calls->get_array();
  if (list.empty()) {
    *calls = nullptr;  // variables_of leaves it out
    return;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    Json* const function = find_member(list[i], "function");
    Json* const arguments = function == nullptr ? nullptr : find_member(*function, "arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    const JsonTree object = object_of(files::text_of(*arguments));
    if (object->is_null()) continue;
    replaced.push_back({place, i, std::string(files::text_of(*arguments))});
    *arguments = *object;
  }
}

/// The last nine letters and digits, after zeros where there are fewer.
void shorten_id(Json* id) {
  constexpr size_t kLength = 9;
  if (id == nullptr || !id->is_string()) return;
  std::string short_id(kLength, '0');
  for (const char c : files::text_of(*id)) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || (c >= '0' && c <= '9')) short_id += c;
  }
  *id = short_id.substr(short_id.size() - kLength);
}

void shorten_ids(Json& message) {
  shorten_id(find_member(message, "tool_call_id"));
  Json* const calls = find_member(message, "tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (Json& call : calls->get_array()) shorten_id(find_member(call, "id"));
}

}  // namespace

std::vector<ArgumentText> adapt_messages(Json& messages, const TemplateFacts& facts) {
  std::vector<ArgumentText> replaced;
  JsonArray* const list = messages.if_array();
  if (list == nullptr) return replaced;
  for (size_t i = 0; i < list->size(); ++i) {
    JsonObject* const message = (*list)[i].if_object();
    if (message == nullptr) continue;
    adapt_content(*message, facts);
    adapt_calls(*message, i, replaced);
    if (facts.wants_short_ids) shorten_ids((*list)[i]);
    Json* const role = message->if_contains("role");
    const bool is_developer = role != nullptr && files::is_text(*role, "developer");
    if (is_developer && !facts.knows_developers) *role = "system";
  }
  return replaced;
}

void restore_arguments(Json& variables, const std::vector<ArgumentText>& arguments) {
  JsonArray& messages = variables.as_object()["messages"].as_array();
  for (const ArgumentText& each : arguments) {
    Json& calls = messages.at(each.message).as_object()["tool_calls"];
    Json& function = calls.as_array().at(each.call).as_object()["function"];
    function.as_object()["arguments"] = each.text;
  }
}

void check_are_read(const Conversation& conversation, const TemplateFacts& facts) {
  const auto check = [](const JsonTree& given, bool is_read, const char* name) {
    const JsonArray* const list = given->if_array();
    const bool is_given = list != nullptr && !list->empty() && list->front().is_object();
    HEDDLE_CHECK(is_read || !is_given, name, ": the model's chat template has no place for ", name,
                 ", so that the model would not see them; leave them out, or choose a model whose "
                 "template has one");
  };
  check(conversation.tools, facts.reads_tools, "tools");
  check(conversation.documents, facts.reads_documents, "documents");
}

}  // namespace heddle::chat_template
