#include "generate/chat_fields.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "shown.h"

namespace heddle::app {
namespace {

using files::json_text;
using files::json_type;
using files::JsonArray;
using files::JsonObject;
using files::text_of;
using json = files::Json;

constexpr size_t kMaxDepth = 64;  // of a row, and so of its messages

constexpr std::array<std::string_view, 8> kMessageFields = {
    "role",         "content",           "name",      "tool_calls",
    "tool_call_id", "reasoning_content", "reasoning", "thinking"};
constexpr std::array<std::string_view, 2> kPartFields = {"type", "text"};
constexpr std::array<std::string_view, 3> kCallFields = {"id", "type", "function"};
constexpr std::array<std::string_view, 2> kFunctionFields = {"name", "arguments"};
// What apply_chat_template of transformers gives a template itself, or takes for itself.
constexpr std::string_view kReserved[] = {"messages",
                                          "conversation",
                                          "conversations",
                                          "tools",
                                          "documents",
                                          "chat_template",
                                          "add_generation_prompt",
                                          "continue_final_message",
                                          "tokenize",
                                          "padding",
                                          "truncation",
                                          "max_length",
                                          "return_dict",
                                          "return_tensors",
                                          "tokenizer_kwargs",
                                          "sanitize_control_tokens",
                                          "return_assistant_tokens_mask"};

std::string place(const std::string& name, size_t i) {
  return name + "[" + std::to_string(i) + "]";
}

void check_object(const json& value, const std::string& where) {
  HEDDLE_CHECK(value.is_object(), where, " is ", json_type(value), ", expected an object");
}
const JsonArray& checked_array(const json& value, const std::string& where, const char* of) {
  HEDDLE_CHECK(value.is_array(), where, " is ", json_type(value), ", expected an array of ", of);
  return value.get_array();
}

/// [{"type": "text", "text": "Hi"}, ...]
void check_parts(const JsonArray& parts, const std::string& where) {
  for (size_t i = 0; i < parts.size(); ++i) {
    check_object(parts[i], place(where, i));
    const RowReader part(parts[i], place(where, i));
    const std::string type = part.required_text("type");
    HEDDLE_CHECK(type == "text", part.where(), " is of type ", quote(type),
                 ", parts of type \"text\" are supported");
    part.check_given_fields(kPartFields);
    (void)part.required_text("text");
  }
}

/// [{"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}, ...]
void check_calls(const json& list, const std::string& where) {
  const JsonArray& calls = checked_array(list, where, "objects");
  for (size_t i = 0; i < calls.size(); ++i) {
    check_object(calls[i], place(where, i));
    const RowReader call(calls[i], place(where, i));
    call.check_given_fields(kCallFields);
    if (const json* id = call.find("id")) (void)call.text("id", *id);
    const json* type = call.find("type");
    HEDDLE_CHECK(type == nullptr || call.text("type", *type) == "function", call.where(),
                 " is of type ", quote(call.text("type", *type)), ", expected \"function\"");
    const json* function = call.find("function");
    HEDDLE_CHECK(function != nullptr, call.where(), ": field function is missing");
    const std::string function_where = call.where() + ".function";
    check_object(*function, function_where);
    const RowReader reader(*function, function_where);
    reader.check_given_fields(kFunctionFields);
    (void)reader.required_text("name");
    const json* arguments = reader.find("arguments");
    HEDDLE_CHECK(arguments == nullptr || arguments->is_object() || arguments->is_string(),
                 function_where, ": arguments is ", json_type(*arguments),
                 ", expected an object or a string");
  }
}

void check_message(const json& entry, const std::string& where) {
  check_object(entry, where);
  const RowReader message(entry, where);
  message.check_given_fields(kMessageFields);
  (void)message.required_text("role");
  const json* calls = message.find("tool_calls");
  if (calls != nullptr) check_calls(*calls, where + ".tool_calls");
  const json* content = message.find("content");
  HEDDLE_CHECK(content != nullptr || calls != nullptr, where, ": field content is missing");
  if (content != nullptr) {
    HEDDLE_CHECK(content->is_string() || content->is_array(), where, ": content is ",
                 json_type(*content), ", expected a string or an array of parts");
    if (content->is_array()) check_parts(content->get_array(), where + ".content");
  }
  for (const char* field : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) {
    if (const json* value = message.find(field)) (void)message.text(field, *value);
  }
}

bool is_plain(const json& message) {
  const json* const content = files::find_member(message, "content");
  return files::size_of(message) == 2 && content != nullptr && content->is_string();
}

void check_objects(const RowReader& row, const char* field) {
  const json* value = row.find(field);
  if (value == nullptr) return;
  const JsonArray& list = checked_array(*value, row.where() + ": " + field, "objects");
  for (size_t i = 0; i < list.size(); ++i) {
    check_object(list[i], row.where() + ": " + place(field, i));
  }
}

}  // namespace

void read_messages(const RowReader& row, const json& list, Request& request) {
  HEDDLE_CHECK(list.is_array() && files::size_of(list) > 0, row.where(), ": messages is ",
               list.is_array() ? "empty" : json_type(list),
               ", expected an array of at least one object");
  const JsonArray& messages = list.get_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    check_message(messages[i], row.where() + ": " + place("messages", i));
  }
  if (!std::ranges::all_of(messages, is_plain)) {
    request.messages_json = json_text(list);
    return;
  }
  for (const json& message : messages) {
    request.messages.push_back(
        {std::string(text_of(message.at("role"))), std::string(text_of(message.at("content")))});
  }
}

void add_system(const std::string& content, Request& request) {
  if (request.messages_json.empty()) {
    if (!request.messages.empty() && request.messages.front().role == "system") return;
    request.messages.insert(request.messages.begin(), {"system", content});
    return;
  }
  files::JsonTree tree = files::parse_json(request.messages_json, "messages", {.depth = kMaxDepth});
  JsonArray& messages = tree->as_array();
  if (files::is_text(messages.front().at("role"), "system")) return;
  messages.insert(messages.begin(), JsonObject{{"role", "system"}, {"content", content}});
  request.messages_json = json_text(*tree);
}

void read_chat_fields(const RowReader& row, Request& request) {
  check_objects(row, "tools");
  check_objects(row, "documents");
  if (const json* kwargs = row.find("chat_template_kwargs")) {
    const std::string where = row.where() + ": chat_template_kwargs";
    check_object(*kwargs, where);
    for (const auto& variable : kwargs->get_object()) {
      HEDDLE_CHECK(
          std::ranges::find(kReserved, std::string_view(variable.key())) == std::end(kReserved),
          where, " holds ", quote(variable.key()), ", which is no variable of the template's own");
    }
  }
  request.tools_json = row.echoed("tools");
  request.documents_json = row.echoed("documents");
  request.template_kwargs_json = row.echoed("chat_template_kwargs");
  request.add_generation_prompt = row.flag("add_generation_prompt", true);
}

}  // namespace heddle::app
