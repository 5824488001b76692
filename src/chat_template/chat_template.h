#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "chat_template/template_facts.h"
#include "files/json.h"

namespace heddle::chat_template {

struct Program;  // a parsed template, see syntax/ast.h

/// A chat template: the subset of Jinja that the templates of language models use, rendered byte
/// for byte as jinja2 does in the environment of Hugging Face transformers (trim_blocks,
/// lstrip_blocks, break and continue, `tojson` without HTML escapes, raise_exception, strftime_now,
/// sandboxed: nothing mutable but namespaces). docs/chat_template.md lists it all.
///
/// Immutable after parse() and cheap to copy; render() may be called from several threads at once.
class ChatTemplate {
 public:
  /// Compiles `source` (UTF-8). Throws Error: kUnsupported for a tag, filter, test, function or
  /// method that is not part of the subset, kInvalidArgument for a syntax error; the text reads
  /// "<name>, line 3: unknown filter 'foo'".
  static ChatTemplate parse(std::string_view source, std::string name = "chat template");

  /// The text for `variables`, an object: messages, add_generation_prompt, bos_token, eos_token,
  /// tools and so on. Throws Error with name and line where the template fails, calls
  /// raise_exception (its message ends the text) or passes a limit of values/limits.h on nesting,
  /// evaluation steps or memory.
  [[nodiscard]] std::string render(const files::Json& variables) const;

  [[nodiscard]] const TemplateFacts& facts() const { return facts_; }
  [[nodiscard]] const std::string& source() const { return *source_; }

  /// What strftime_now tells: local time of the system unless set here.
  void set_clock(std::function<std::time_t()> clock) { clock_ = std::move(clock); }

 private:
  // Shared by copies: they never change.
  std::shared_ptr<const Program> program_;
  std::shared_ptr<const std::string> source_;
  TemplateFacts facts_;
  std::function<std::time_t()> clock_ = [] { return std::time(nullptr); };
};

}  // namespace heddle::chat_template
