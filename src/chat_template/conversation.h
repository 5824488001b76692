// What a chat template is rendered for, and the variables that it sees of it.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "files/json_document.h"

namespace heddle::chat_template {

/// The tokenizer's own tokens by the name that templates know: {"bos_token", "<s>"}. What a
/// tokenizer does not have is not there.
using SpecialTokens = std::map<std::string, std::string>;

using JsonValue = files::JsonDocument<nlohmann::ordered_json>;

/// A conversation in the form that OpenAI's chat API and Hugging Face's apply_chat_template give
/// it. What is null is not given.
struct Conversation {
  JsonValue messages{};   // an array of at least one object
  JsonValue tools{};      // an array of objects
  JsonValue documents{};  // an array of objects
  JsonValue kwargs{};     // further variables of the template, an object
  bool add_generation_prompt = true;
  /// The messages come from a client of a chat API and take the form that the template reads, see
  /// client_messages.h; else they stay as they are, as with apply_chat_template.
  bool is_from_client = false;

  /// Tools are given, be it none: what chooses the template for tools.
  [[nodiscard]] bool has_tools() const { return !tools->is_null(); }
};

/// The variables as transformers' apply_chat_template makes them: `messages` without their null
/// fields and with reasoning_content filled from `thinking` or `reasoning`, where one of the three
/// is given; `tools`, `documents`, `add_generation_prompt`; the special tokens, over which kwargs
/// of the same name go. Throws Error(kInvalidArgument) that names the field for values of other
/// types, and for kwargs that are an argument of apply_chat_template itself.
[[nodiscard]] JsonValue variables_of(Conversation conversation, const SpecialTokens& tokens);

}  // namespace heddle::chat_template
