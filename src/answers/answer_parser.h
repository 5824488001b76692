#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_style.h"

namespace heddle::answers {

/// A piece of a call of a tool.
struct CallDelta {
  size_t index = 0;         // of the call in the answer
  std::string id{};         // with the first piece of a call: "call_" and 24 hexadecimal digits
  std::string name{};       // with the first piece of a call
  std::string arguments{};  // JSON text; the pieces of one call, one after another, are an object
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
  size_t max_calls = 0;  // of the answer; what follows is dropped. 0: any number
};

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
struct Call {
  std::string id{}, name{}, arguments{};
};
struct ParsedAnswer {
  std::string reasoning{}, text{};
  std::vector<Call> calls{};
};
[[nodiscard]] ParsedAnswer parse_answer(const AnswerStyle& style, ParserOptions options,
                                        std::string_view text);

}  // namespace heddle::answers
