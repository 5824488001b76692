#pragma once

#include <map>
#include <optional>
#include <string>

#include "chat_template/chat_template.h"
#include "chat_template/special_tokens.h"

namespace heddle::chat_template {

struct Conversation;  // conversation.h

/// The chat templates of a model. Most have one; some have several, each with a name: "default" and
/// "tool_use" among them.
class ChatTemplates {
 public:
  ChatTemplates() = default;
  /// `sources` by name; a model's only template has the name "default". "default" and "tool_use"
  /// are parsed, with the errors of ChatTemplate::parse; no conversation chooses another name.
  /// Messages begin with `name`.
  static ChatTemplates from(const std::map<std::string, std::string>& sources,
                            const std::string& name = "chat template");

  /// The model has no template of any name.
  [[nodiscard]] bool empty() const { return names_.empty(); }
  /// Whether `pick` finds one.
  [[nodiscard]] bool has(bool with_tools) const {
    return default_.has_value() || (with_tools && tool_use_);
  }
  /// As transformers chooses: "tool_use" where tools are given, be it none of them, else "default".
  /// Throws Error(kUnsupported) with the names where that one is not there.
  [[nodiscard]] const ChatTemplate& pick(bool with_tools) const;
  /// The text for the conversation, by the template that is for it.
  [[nodiscard]] std::string render(Conversation conversation, const SpecialTokens& tokens) const;

 private:
  std::optional<ChatTemplate> default_, tool_use_;
  std::string names_;  // "default, tool_use"
};

}  // namespace heddle::chat_template
