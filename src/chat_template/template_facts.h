#pragma once

namespace heddle::chat_template {

struct Program;

/// What a template's source says about the conversations that it can render.
struct TemplateFacts {
  /// A loop goes over the parts of a message's content, or the text of one part is read; else
  /// content is text to the template.
  bool iterates_content = false;
  bool tests_strings = false;  // `is string` is somewhere in it
  bool reads_tools = false, reads_documents = false;
  bool reads_effort = false;      // the variable reasoning_effort
  bool wants_short_ids = false;   // of calls: it refuses those without nine letters and digits
  bool knows_developers = false;  // the role "developer" is somewhere in it
};

/// Found by following the variables that hold messages, a message or its content from assignments
/// to loops, wherever these are in the template: no value of a conversation is needed.
[[nodiscard]] TemplateFacts facts_of(const Program& program);

}  // namespace heddle::chat_template
