#include "chat_template/chat_templates.h"

#include <vector>

#include "heddle/core/error.h"

#include "chat_template/client_messages.h"
#include "chat_template/conversation.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::chat_template {

ChatTemplates ChatTemplates::from(const std::map<std::string, std::string>& sources,
                                  const std::string& name) {
  ChatTemplates templates;
  for (const auto& [template_name, source] : sources) {
    const bool is_first = templates.names_.empty();
    templates.names_ += (is_first ? "" : ", ") + files::quote(template_name);
    if (template_name == "default") templates.default_ = ChatTemplate::parse(source, name);
    if (template_name == "tool_use") {
      templates.tool_use_ = ChatTemplate::parse(source, name + " (tool_use)");
    }
  }
  return templates;
}

const ChatTemplate& ChatTemplates::pick(bool with_tools) const {
  if (with_tools && tool_use_) return *tool_use_;
  if (!default_) {
    throw_error(ErrorCode::kUnsupported, "the model has no chat template named \"default\"",
                empty() ? "" : "; there are ", names_);
  }
  return *default_;
}

std::string ChatTemplates::render(Conversation conversation, const SpecialTokens& tokens) const {
  const ChatTemplate& chosen = pick(conversation.has_tools());
  std::vector<ArgumentText> arguments;
  if (conversation.is_from_client) {
    check_are_read(conversation, chosen.facts());
    arguments = adapt_messages(*conversation.messages, chosen.facts());
  }
  files::JsonTree variables = variables_of(conversation, tokens);
  if (arguments.empty()) return chosen.render(*variables);
  try {
    return chosen.render(*variables);
  } catch (const Error&) {
    // Some templates, such as DeepSeek's, join arguments to text and cannot have an object there.
    restore_arguments(*variables, arguments);
    return chosen.render(*variables);
  }
}

}  // namespace heddle::chat_template
