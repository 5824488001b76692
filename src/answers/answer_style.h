// How a model writes what is no plain text: thoughts before its answer, and calls of tools.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heddle::answers {

/// The forms in which models call tools, by the family that began with it. docs/tools.md shows
/// each.
enum class ToolFormat : uint8_t {
  kNone,
  kHermes,      // <tool_call>\n{"name": "now", "arguments": {...}}\n</tool_call>: Hermes, Qwen
  kQwen3Coder,  // <tool_call>\n<function=now>\n<parameter=zone>\nUTC\n</parameter>\n</function>...
  kLlama3Json,  // {"name": "now", "parameters": {...}}
  kPythonic,    // [now(zone="UTC"), now()]
  kMistral,     // [TOOL_CALLS][{"name": "now", "arguments": {...}}]
  kMistralV11,  // [TOOL_CALLS]now[ARGS]{...}
  kGranite,     // <|tool_call|>[{"name": "now", "arguments": {...}}]
  kPhi4,        // functools[{"name": "now", "arguments": {...}}]
  kGemma,       // ```tool_code\nnow(zone="UTC")\n```
  kSmolLm3      // <tool_call>{"name": "now", "arguments": {...}}</tool_call>
};

/// The marks around a model's thoughts.
struct ReasoningStyle {
  std::string begin{}, end{};  // "<think>" and "</think>"; both empty: it does not think aloud
  /// Marks around the text after the thoughts, "<response>" of Granite; empty: there are none.
  std::string text_begin{}, text_end{};
  /// The prompt ends within them: the answer begins with thoughts, without `begin`.
  bool has_begun = false;
  /// Whether answers may think: the template, or its variables, may have turned it off.
  bool is_on = false;
  bool reads_effort = false;  // the template reads a variable reasoning_effort
};

struct AnswerStyle {
  ToolFormat tools = ToolFormat::kNone;
  ReasoningStyle reasoning{};
};

/// What the source of a chat template says about the answers to it. `has_begun` and `is_on` of the
/// result are for rendered prompts: see style_of_prompt.
[[nodiscard]] AnswerStyle style_of_template(std::string_view source);

/// The style for a prompt: `style` with `has_begun` and `is_on` as the end of its text has it. A
/// prompt that ends with a closed pair of marks without thoughts has thinking off.
[[nodiscard]] AnswerStyle style_of_prompt(AnswerStyle style, std::string_view prompt);

/// The format of a name of --tool-parser: "hermes", "qwen3_coder" and the other names, with vLLM's
/// and SGLang's for the same formats. Absent: there is no such one.
[[nodiscard]] std::optional<ToolFormat> tool_format_named(std::string_view name);
/// The names of --tool-parser, aliases included.
[[nodiscard]] std::span<const std::string_view> tool_format_names();
/// The name by which heddle calls it: "hermes".
[[nodiscard]] std::string_view name(ToolFormat format);

/// The marks of a name of --reasoning-parser: "think", "qwen3", "deepseek_r1", "mistral", ...
[[nodiscard]] std::optional<ReasoningStyle> reasoning_named(std::string_view name);
[[nodiscard]] std::span<const std::string_view> reasoning_names();

}  // namespace heddle::answers
