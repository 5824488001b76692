#include "chat_template/conversation.h"

#include <algorithm>
#include <string_view>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

using files::find_member;
using files::Json;
using files::json_type;
using files::JsonArray;
using files::JsonObject;

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

void check_objects(const Json& list, const char* name) {
  HEDDLE_CHECK(list.is_array(), name, " is ", json_type(list), ", expected an array of objects");
  const JsonArray& entries = list.get_array();
  for (size_t i = 0; i < entries.size(); ++i) {
    HEDDLE_CHECK(entries[i].is_object(), name, "[", i, "] is ", json_type(entries[i]),
                 ", expected an object");
  }
}

/// The member, unless it is missing or null.
const Json* given(const Json& object, const char* key) {
  const Json* const member = find_member(object, key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

/// Adds the message without its null fields: clients send "content": null with calls of tools,
/// templates know a missing field, and would print None. What a model thought goes by three names;
/// templates read one of two.
void add_message(JsonArray& messages, const Json& message) {
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (reasoning == nullptr) reasoning = given(message, name);
  }
  JsonObject& result = messages.emplace_back(nullptr).emplace_object();
  if (reasoning != nullptr && given(message, "thinking") == nullptr) {
    result.emplace("thinking", *reasoning);
  }
  for (const auto& member : message.get_object()) {
    if (!member.value().is_null()) result.emplace(member.key(), member.value());
  }
  if (reasoning != nullptr) result.insert_or_assign("reasoning_content", *reasoning);
}

}  // namespace

bool Conversation::has_tools() const { return !tools->is_null(); }

files::JsonTree variables_of(const Conversation& conversation, const SpecialTokens& tokens) {
  check_objects(*conversation.messages, "messages");
  HEDDLE_CHECK(!conversation.messages->get_array().empty(),
               "messages is empty, expected at least one");
  if (conversation.has_tools()) check_objects(*conversation.tools, "tools");
  if (!conversation.documents->is_null()) check_objects(*conversation.documents, "documents");
  files::JsonTree tree;
  JsonObject& variables = tree->emplace_object();
  JsonArray& messages = variables["messages"].emplace_array();
  for (const Json& message : conversation.messages->get_array()) add_message(messages, message);
  variables["tools"] = *conversation.tools;
  variables["documents"] = *conversation.documents;
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  for (const auto& [name, token] : tokens) variables[name] = token;
  const Json& kwargs = *conversation.kwargs;
  if (kwargs.is_null()) return tree;
  HEDDLE_CHECK(kwargs.is_object(), "chat_template_kwargs is ", json_type(kwargs),
               ", expected an object");
  for (const auto& member : kwargs.get_object()) {
    const std::string_view name = member.key();
    HEDDLE_CHECK(std::ranges::find(kArguments, name) == std::end(kArguments),
                 "chat_template_kwargs holds ", files::quote(name),
                 ", which is a reserved name; leave it out");
    variables[name] = member.value();
  }
  return tree;
}

}  // namespace heddle::chat_template
