// What a chat template is rendered for, and the variables that it sees of it.
#pragma once

#include "chat_template/special_tokens.h"
#include "files/json_tree.h"

namespace heddle::chat_template {

/// A conversation in the form that OpenAI's chat API and Hugging Face's apply_chat_template give
/// it. What is null is not given.
struct Conversation {
  files::JsonTree messages{};   // an array of at least one object
  files::JsonTree tools{};      // an array of objects
  files::JsonTree documents{};  // an array of objects
  files::JsonTree kwargs{};     // further variables of the template, an object
  bool add_generation_prompt = true;
  /// The messages come from a client of a chat API and take the form that the template reads, see
  /// client_messages.h; else they stay as they are, as with apply_chat_template.
  bool is_from_client = false;

  /// Tools are given, be it none: what chooses the template for tools.
  [[nodiscard]] bool has_tools() const;
};

/// The variables as transformers' apply_chat_template makes them: `messages` without their null
/// fields and with reasoning_content filled from `thinking` or `reasoning`, where one of the three
/// is given; `tools`, `documents`, `add_generation_prompt`; the special tokens, over which kwargs
/// of the same name go. Throws Error(kInvalidArgument) that names the field for values of other
/// types, and for kwargs that are an argument of apply_chat_template itself.
[[nodiscard]] files::JsonTree variables_of(const Conversation& conversation,
                                           const SpecialTokens& tokens);

}  // namespace heddle::chat_template
