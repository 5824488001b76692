#pragma once

#include <cstdint>
#include <string>

#include "heddle/engine/request.h"

#include "answers/answer_style.h"

namespace heddle::answers {

/// Which calls of tools an answer may or must have.
enum class ToolChoice : uint8_t { kNone, kAuto, kRequired, kFunction };

/// How far the grammar holds calls to their tools, as --tool-strict-level has it.
enum class StrictLevel : uint8_t {
  kAuto,  // the form of a call always where one must be; arguments as `strict` of each tool says
  kFunction,  // the form of a call and the names of tools, also where calls are free
  kParameter  // arguments, too: the schema of each tool, whatever its `strict`
};

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
