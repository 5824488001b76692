#include "answers/answer_style.h"

#include "answers/json_scanner.h"

namespace heddle::answers {
namespace {

/// The source as its strings read: \" and \' without backslash, \n as a line end.
std::string without_escapes(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const char next = i + 1 < source.size() ? source[i + 1] : '\0';
    if (source[i] == '\\' && (next == '"' || next == '\'' || next == 'n')) {
      text.push_back(next == 'n' ? '\n' : next);
      ++i;
    } else {
      text.push_back(source[i]);
    }
  }
  return text;
}

/// What a template's text has of marks.
class Marks {
 public:
  explicit Marks(std::string_view source) : text_(without_escapes(source)) {}
  [[nodiscard]] bool has(std::string_view mark) const {
    return text_.find(mark) != std::string::npos;
  }
  [[nodiscard]] ToolFormat tools() const {
    if (has("[TOOL_CALLS]")) return has("[ARGS]") ? ToolFormat::kMistralV11 : ToolFormat::kMistral;
    if (has("<tool_call>")) {
      if (has("<function=") && has("<parameter=")) return ToolFormat::kQwen3Coder;
      // Others put name and arguments into marks of their own, or several calls into one.
      const bool is_json = has("\"arguments\"") && !has("<arg_key>") && !has("<tool_calls>");
      if (is_json) return has("xml_tools") ? ToolFormat::kSmolLm3 : ToolFormat::kHermes;
      return ToolFormat::kNone;
    }
    if (has("functools[") || has("<|/tool|>")) return ToolFormat::kPhi4;
    if (has("<|tool_call|>") && has("<|start_of_role|>")) return ToolFormat::kGranite;
    if (has("```tool_code")) return ToolFormat::kGemma;
    return llama_tools();
  }
  [[nodiscard]] ReasoningStyle reasoning() const {
    if (has("[THINK]")) return {.begin = "[THINK]", .end = "[/THINK]"};
    if (has("Here is my thought process:")) return *reasoning_named("granite");
    if (!has("</think>")) return {};
    return *reasoning_named(has("<response></response>") ? "granite_response" : "think");
  }

 private:
  [[nodiscard]] ToolFormat llama_tools() const {
    if (has("[func_name1(")) return ToolFormat::kPythonic;
    const bool asks_for_json = has("\"parameters\": dictionary of argument name");
    const bool writes_json = has("<|python_tag|>") && has("\"parameters\": ") && !has("<function=");
    if (asks_for_json || writes_json) return ToolFormat::kLlama3Json;
    return has("<|python_start|>") ? ToolFormat::kPythonic : ToolFormat::kNone;
  }

  std::string text_;
};

std::string_view without_space_after(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

AnswerStyle style_of_template(std::string_view source) {
  const Marks marks(source);
  return {.tools = marks.tools(), .reasoning = marks.reasoning()};
}

AnswerStyle style_of_prompt(AnswerStyle style, std::string_view prompt) {
  ReasoningStyle& reasoning = style.reasoning;
  const std::string_view text = without_space_after(prompt);
  reasoning.has_begun = !reasoning.begin.empty() && text.ends_with(reasoning.begin);
  // Without thoughts templates write a closed pair, some of them its end alone.
  reasoning.is_on = !reasoning.end.empty() && !text.ends_with(reasoning.end);
  return style;
}

}  // namespace heddle::answers
