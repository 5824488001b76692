#include "chat_template/conversation.h"

#include <algorithm>
#include <string_view>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::chat_template {
namespace {

using json = nlohmann::ordered_json;

/// What apply_chat_template takes itself, so that the template never sees it.
constexpr std::string_view kArguments[] = {"messages",
                                           "conversation",
                                           "tools",
                                           "documents",
                                           "add_generation_prompt",
                                           "chat_template",
                                           "tokenize",
                                           "padding",
                                           "truncation",
                                           "continue_final_message",
                                           "return_tensors",
                                           "return_dict",
                                           "max_length",
                                           "conversations",
                                           "tokenizer_kwargs",
                                           "sanitize_control_tokens",
                                           "return_assistant_tokens_mask"};

void check_objects(const json& list, const char* name) {
  HEDDLE_CHECK(list.is_array(), name, " is ", list.type_name(), ", expected an array of objects");
  for (size_t i = 0; i < list.size(); ++i) {
    HEDDLE_CHECK(list[i].is_object(), name, "[", i, "] is ", list[i].type_name(),
                 ", expected an object");
  }
}

/// Adds the member, or gives the one that is there.
json& member_of(json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() ? *found : files::add_member(object, key);
}

/// Adds the message without its null fields: clients send "content": null with calls of tools,
/// templates know a missing field, and would print None. What a model thought goes by three names;
/// templates read one of two.
void add_message(json& messages, json& message) {
  const json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    reasoning = &*found;
    break;
  }
  JsonValue thought;
  if (reasoning != nullptr) files::copy_json(*thought, *reasoning);
  json& result = messages.emplace_back(json::object());
  const auto thinking = message.find("thinking");
  if (reasoning != nullptr && (thinking == message.end() || thinking->is_null())) {
    files::copy_json(files::add_member(result, "thinking"), *thought);
  }
  for (auto& [key, value] : message.get_ref<json::object_t&>()) {
    if (!value.is_null()) files::add_member(result, key).swap(value);
  }
  if (reasoning != nullptr) member_of(result, "reasoning_content").swap(*thought);
}

}  // namespace

JsonValue variables_of(Conversation conversation, const SpecialTokens& tokens) {
  check_objects(*conversation.messages, "messages");
  HEDDLE_CHECK(!conversation.messages->empty(), "messages is empty, expected at least one");
  JsonValue variables(json::object());
  json& messages = files::add_member(*variables, "messages");
  messages = json::array();
  for (json& message : *conversation.messages) add_message(messages, message);
  if (!conversation.tools->is_null()) check_objects(*conversation.tools, "tools");
  if (!conversation.documents->is_null()) check_objects(*conversation.documents, "documents");
  files::add_member(*variables, "tools").swap(*conversation.tools);
  files::add_member(*variables, "documents").swap(*conversation.documents);
  files::add_member(*variables, "add_generation_prompt") = conversation.add_generation_prompt;
  for (const auto& [name, token] : tokens) member_of(*variables, name) = token;
  json& kwargs = *conversation.kwargs;
  if (kwargs.is_null()) return variables;
  HEDDLE_CHECK(kwargs.is_object(), "chat_template_kwargs is ", kwargs.type_name(),
               ", expected an object");
  for (auto& [name, value] : kwargs.get_ref<json::object_t&>()) {
    HEDDLE_CHECK(std::ranges::find(kArguments, name) == std::end(kArguments),
                 "chat_template_kwargs holds ", files::quote(name),
                 ", which is no variable of the template's own");
    member_of(*variables, name).swap(value);
  }
  return variables;
}

}  // namespace heddle::chat_template
