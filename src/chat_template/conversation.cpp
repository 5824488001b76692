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

/// Clients send "content": null with calls of tools; templates know a missing field, and would
/// print None.
json without_nulls(const json& message) {
  json result = json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) result.push_back({key, value});
  }
  return result;
}

/// What a model thought goes by three names; templates read one of two.
json with_reasoning(json message) {
  const json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    reasoning = &*found;
    break;
  }
  if (reasoning == nullptr) return message;
  json result = json::object();
  if (!message.contains("thinking")) result["thinking"] = *reasoning;
  const json value = *reasoning;
  for (auto& [key, field] : message.items()) result[key] = std::move(field);
  result["reasoning_content"] = value;
  return result;
}

}  // namespace

json variables_of(Conversation conversation, const SpecialTokens& tokens) {
  check_objects(conversation.messages, "messages");
  HEDDLE_CHECK(!conversation.messages.empty(), "messages is empty, expected at least one");
  json variables = json::object();
  json& messages = variables["messages"] = json::array();
  for (const json& message : conversation.messages) {
    messages.push_back(with_reasoning(without_nulls(message)));
  }
  if (!conversation.tools.is_null()) check_objects(conversation.tools, "tools");
  if (!conversation.documents.is_null()) check_objects(conversation.documents, "documents");
  variables["tools"] = std::move(conversation.tools);
  variables["documents"] = std::move(conversation.documents);
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  for (const auto& [name, token] : tokens) variables[name] = token;
  const json& kwargs = conversation.kwargs;
  if (kwargs.is_null()) return variables;
  HEDDLE_CHECK(kwargs.is_object(), "chat_template_kwargs is ", kwargs.type_name(),
               ", expected an object");
  for (const auto& [name, value] : kwargs.items()) {
    HEDDLE_CHECK(std::ranges::find(kArguments, name) == std::end(kArguments),
                 "chat_template_kwargs holds ", files::quote(name),
                 ", which is no variable of the template's own");
    variables[name] = value;
  }
  return variables;
}

}  // namespace heddle::chat_template
