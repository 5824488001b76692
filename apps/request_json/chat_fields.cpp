#include "request_json/chat_fields.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_tree.h"
#include "files/json_value.h"
#include "request_json/nearest.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using files::json_type;
using files::JsonArray;
using files::JsonObject;
using files::text_of;
using json = files::Json;

constexpr std::array<std::string_view, 9> kMessageFields = {
    "role",         "content",           "name",      "tool_calls", "prefix",
    "tool_call_id", "reasoning_content", "reasoning", "thinking"};
constexpr std::array<std::string_view, 3> kPartFields = {"type", "text", "refusal"};
constexpr std::array<std::string_view, 3> kCallFields = {"id", "type", "function"};
constexpr std::array<std::string_view, 2> kFunctionFields = {"name", "arguments"};
// What clients add that says nothing to a model: marks for a cache of prompts, the place of a call
// in a stream, what else came with an answer that is sent back.
constexpr std::string_view kNoMeaning[] = {"cache_control", "annotations", "refusal", "index"};
constexpr size_t kMostIgnored = 32;  // names that are kept
constexpr std::string_view kTextTypes[] = {"text", "input_text", "output_text"};
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

/// In memory of its own: what else the row has need not stay.
JsonValue shared(const json& value) {
  auto tree = std::make_shared<files::JsonTree>();
  **tree = value;
  return JsonValue(std::move(tree));
}

std::string place(const std::string& name, size_t i) {
  return name + "[" + std::to_string(i) + "]";
}

void check_object(const json& value, const std::string& where) {
  HEDDLE_CHECK(value.is_object(), where, " is ", json_type(value), ", expected an object");
}
JsonArray& checked_array(json& value, const std::string& where, const char* of) {
  HEDDLE_CHECK(value.is_array(), where, " is ", json_type(value), ", expected an array of ", of);
  return value.get_array();
}

/// Of short lists.
template <class List>
bool is_in(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

/// Leaves out members that are null, and those that are in no list where they may be ignored;
/// refuses others. `path` names the object without its numbers: "messages.content".
void check_members(json& object, std::span<const std::string_view> known, const std::string& where,
                   const std::string& path, MessageFields* fields) {
  JsonObject kept(object.storage());
  for (auto& member : object.get_object()) {
    const std::string_view name = member.key();
    if (member.value().is_null()) continue;
    if (is_in(known, name)) {
      kept.emplace(name, std::move(member.value()));
      continue;
    }
    const bool is_ignored =
        fields != nullptr && (fields->ignores_unknown || is_in(kNoMeaning, name));
    HEDDLE_CHECK(is_ignored, where, ": unknown field ", quote(name), did_you_mean(name, known));
    const std::string ignored = path + "." + std::string(name);
    const bool is_new = fields->ignored.size() < kMostIgnored && !is_in(fields->ignored, ignored);
    if (is_new) fields->ignored.push_back(ignored);
  }
  object.get_object() = std::move(kept);
}

/// "Hi", {"type": "text", "text": "Hi"} or a kin of it; becomes the second form.
void check_part(json& part, const std::string& where, MessageFields* fields) {
  if (part.is_string()) {
    const json text = part;
    part = JsonObject{{"type", "text"}, {"text", text}};
    return;
  }
  check_object(part, where);
  const std::string type = RowReader(part, where).required_text("type");
  const bool is_refusal = type == "refusal";
  HEDDLE_CHECK(is_refusal || is_in(kTextTypes, type), where, " is of type ", quote(type),
               ", parts of type \"text\" are supported");
  check_members(part, kPartFields, where, "messages.content", fields);
  const std::string text = RowReader(part, where).required_text(is_refusal ? "refusal" : "text");
  part = JsonObject{{"type", "text"}, {"text", text}};
}

/// [{"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}, ...]
void check_calls(json& list, const std::string& where, MessageFields* fields) {
  JsonArray& calls = checked_array(list, where, "objects");
  for (size_t i = 0; i < calls.size(); ++i) {
    check_object(calls[i], place(where, i));
    const RowReader call(calls[i], place(where, i));
    check_members(calls[i], kCallFields, call.where(), "messages.tool_calls", fields);
    if (const json* id = call.find("id")) (void)call.text("id", *id);
    const json* type = call.find("type");
    HEDDLE_CHECK(type == nullptr || call.text("type", *type) == "function", call.where(),
                 " is of type ", quote(call.text("type", *type)), ", expected \"function\"");
    HEDDLE_CHECK(call.find("function") != nullptr, call.where(), ": field function is missing");
    json& function = calls[i].at("function");
    const std::string function_where = call.where() + ".function";
    check_object(function, function_where);
    check_members(function, kFunctionFields, function_where, "messages.tool_calls.function",
                  fields);
    const RowReader reader(function, function_where);
    (void)reader.required_text("name");
    const json* arguments = reader.find("arguments");
    HEDDLE_CHECK(arguments == nullptr || arguments->is_object() || arguments->is_string(),
                 function_where, ": arguments is ", json_type(*arguments),
                 ", expected an object or a string");
  }
}

void check_content(json& entry, const std::string& where, MessageFields* fields) {
  JsonObject& message = entry.get_object();
  json* const content = message.if_contains("content");
  if (content == nullptr) {
    const bool may_be_missing =
        files::is_text(message.at("role"), "assistant") || message.contains("tool_calls");
    HEDDLE_CHECK(may_be_missing, where, ": field content is missing");
    message.emplace("content", "");
    return;
  }
  HEDDLE_CHECK(content->is_string() || content->is_array(), where, ": content is ",
               json_type(*content), ", expected a string or an array of parts");
  if (!content->is_array()) return;
  JsonArray& parts = content->get_array();
  for (size_t i = 0; i < parts.size(); ++i) {
    check_part(parts[i], place(where + ".content", i), fields);
  }
}

void check_message(json& entry, const std::string& where, MessageFields* fields) {
  check_object(entry, where);
  check_members(entry, kMessageFields, where, "messages", fields);
  const RowReader message(entry, where);
  (void)message.required_text("role");
  if (json* const calls = entry.get_object().if_contains("tool_calls")) {
    check_calls(*calls, where + ".tool_calls", fields);
    if (files::size_of(*calls) == 0) entry.get_object().stable_erase("tool_calls");
  }
  check_content(entry, where, fields);
  for (const char* field : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) {
    if (const json* value = message.find(field)) (void)message.text(field, *value);
  }
}

/// Whether the answer goes on with this message, as Mistral's and DeepSeek's requests say it.
bool take_prefix(json& message, const std::string& where, bool is_last) {
  const bool is_prefix = RowReader(message, where).flag("prefix", false);
  message.get_object().stable_erase("prefix");
  HEDDLE_CHECK(!is_prefix || (is_last && files::is_text(message.at("role"), "assistant")), where,
               ": prefix is true, which only a last message of the assistant may have");
  return is_prefix;
}

bool is_plain(const json& message) {
  const json* const content = files::find_member(message, "content");
  return files::size_of(message) == 2 && content != nullptr && content->is_string();
}

void check_objects(const RowReader& row, const char* field) {
  const json* value = row.array(field, "objects");
  if (value == nullptr) return;
  const JsonArray& list = value->get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    check_object(list[i], row.where() + ": " + place(field, i));
  }
}

}  // namespace

void read_messages(const RowReader& row, json list, Request& request, MessageFields* fields) {
  HEDDLE_CHECK(list.is_array() && files::size_of(list) > 0, row.where(), ": messages is ",
               list.is_array() ? "empty" : json_type(list),
               ", expected an array of at least one object");
  JsonArray& messages = list.get_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = row.where() + ": " + place("messages", i);
    check_message(messages[i], where, fields);
    if (take_prefix(messages[i], where, i + 1 == messages.size())) {
      request.continue_final_message = true;
    }
  }
  if (!std::ranges::all_of(messages, is_plain)) {
    request.messages_json = shared(list);
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
  auto tree = std::make_shared<files::JsonTree>(request.messages_json.tree("messages"));
  JsonArray& messages = (*tree)->as_array();
  if (files::is_text(messages.front().at("role"), "system")) return;
  messages.insert(messages.begin(), JsonObject{{"role", "system"}, {"content", content}});
  request.messages_json = JsonValue(std::move(tree));
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
          where, " holds ", quote(variable.key()), ", which is a reserved name; leave it out");
    }
  }
  const std::pair<const char*, JsonValue&> values[] = {
      {"tools", request.tools_json},
      {"documents", request.documents_json},
      {"chat_template_kwargs", request.template_kwargs_json}};
  for (const auto& [field, value] : values) {
    const json* const given = row.find(field);
    if (given != nullptr) value = shared(*given);
  }
  request.add_generation_prompt =
      row.flag("add_generation_prompt", !request.continue_final_message);
  HEDDLE_CHECK(!request.add_generation_prompt || !request.continue_final_message, row.where(),
               ": add_generation_prompt is true, and the answer goes on with the last message; "
               "leave one of them out");
}

}  // namespace heddle::app
