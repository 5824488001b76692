#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "heddle/engine/request.h"

#include "answers/answer_style.h"

namespace heddle::answers {

/// Which calls of tools an answer may or must have.
enum class ToolChoice : uint8_t { kNone, kAuto, kRequired, kFunction };

/// How far the grammar holds calls to their tools, as --tool-strict-level has it; docs/tools.md has
/// the table. Calls that are held have their form, the name of a tool and an object for arguments.
enum class StrictLevel : uint8_t {
  kAuto,      // held where a call must be made, a tool is strict, or the content has a format
  kFunction,  // always held
  kParameter  // so they are, and all arguments follow the schemas of their tools
};

/// Bytes of the name of a tool.
inline constexpr size_t kMaxToolName = 128;

struct ToolRequest {
  JsonValue tools{};  // an array as in OpenAI's chat API
  ToolChoice choice = ToolChoice::kNone;
  std::string function{};      // with kFunction: its name
  bool allows_several = true;  // parallel_tool_calls
  StrictLevel strict = StrictLevel::kAuto;
};

/// The format of answers that may think, then have `content` or calls of tools. Where none of that
/// binds the answer the result has kind kText. Throws Error, which names the field, for tools whose
/// schemas are wrong, and for a choice of a function that is not among the tools; kUnsupported
/// where calls must be made and the style has no format for them.
[[nodiscard]] AnswerFormat answer_grammar(const AnswerStyle& style, const ToolRequest& request,
                                          const AnswerFormat& content);

}  // namespace heddle::answers
