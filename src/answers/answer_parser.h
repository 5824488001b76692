#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/engine/json_value.h"

#include "answers/answer_style.h"
#include "answers/tool_types.h"

namespace heddle::answers {

/// A piece of a call of a tool.
struct CallDelta {
  size_t index = 0;  // of the call in the answer
  /// With the first piece of a call: "call_" and 24 hexadecimal digits; for Mistral 9 such digits,
  /// since its templates take no other ids back.
  std::string id{};
  std::string name{};  // with the first piece of a call
  /// JSON text. The pieces of one call, one after another, are an object, unless the answer ends
  /// within it or the model made a mistake in it.
  std::string arguments{};
};

/// What has become certain of an answer, in this order.
struct AnswerDelta {
  std::string reasoning{};
  std::string text{};
  std::vector<CallDelta> calls{};

  [[nodiscard]] bool empty() const { return reasoning.empty() && text.empty() && calls.empty(); }
};

struct ParserOptions {
  bool finds_calls = false;      // the request has tools that it may call
  bool finds_reasoning = false;  // thoughts are reported apart; else they are text
  /// Names of the request's tools. A call of another one is text, in formats without marks.
  std::vector<std::string> tools{};
  /// The types of their parameters, for formats that do not write them. Answers to one request
  /// share them. Null: not known.
  std::shared_ptr<const ToolTypes> types{};
  size_t max_calls = 0;  // of the answer; what follows is dropped. 0: any number
};

/// Has the options find calls of the tools, an array as in OpenAI's chat API.
void find_tools(ParserOptions& options, const JsonValue& tools);

/// Splits the text of an answer, which comes in pieces of any size, into thoughts, text and calls.
/// The same text gives the same parts however it is cut. What only looks like a call is text,
/// without a byte missing; text that may yet become a mark is held back.
class AnswerParser {
 public:
  AnswerParser(AnswerStyle style, ParserOptions options);
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;
  ~AnswerParser();

  [[nodiscard]] AnswerDelta push(std::string_view text);
  /// What the end of the answer makes certain. A call that is cut off keeps the arguments that it
  /// has where some of it was reported; else it is text.
  [[nodiscard]] AnswerDelta finish();
  [[nodiscard]] size_t num_calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A whole answer at once.
struct ParsedCall {
  std::string id{}, name{}, arguments{};
};
struct ParsedAnswer {
  std::string reasoning{}, text{};
  std::vector<ParsedCall> calls{};
};
[[nodiscard]] ParsedAnswer parse_answer(const AnswerStyle& style, ParserOptions options,
                                        std::string_view text);

}  // namespace heddle::answers
