#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "chat_template/conversation.h"
#include "chat_template/template_facts.h"

namespace heddle::chat_template {

/// The arguments of a call of a tool as the client wrote them.
struct ArgumentText {
  size_t message, call;
  std::string text;
};

/// Brings messages in the form of OpenAI's chat API into the one that a template reads, as vLLM
/// does:
///  - content that is null or missing is empty;
///  - the text parts of content become one text, joined by newlines, unless the template goes over
///    parts; text becomes one part where the template knows parts alone;
///  - arguments of calls that are the text of a JSON object become that object;
///  - ids of calls are their last nine letters and digits where the template refuses others, as
///    Mistral's do: another model may have begun the conversation;
///  - an empty list of calls is left out.
/// As in llama.cpp, "developer" is "system" to a template that does not know this role. What is no
/// object stays, for variables_of to refuse. Returns the texts of arguments that were replaced.
[[nodiscard]] std::vector<ArgumentText> adapt_messages(files::Json& messages,
                                                       const TemplateFacts& facts);

/// Puts the texts of arguments back into the `messages` of a template's variables, of which none
/// was added or removed.
void restore_arguments(files::Json& variables, const std::vector<ArgumentText>& arguments);

/// Throws Error(kInvalidArgument) where tools or documents are given that the template does not
/// read: the model would never see them.
void check_are_read(const Conversation& conversation, const TemplateFacts& facts);

}  // namespace heddle::chat_template
