#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_parser.h"
#include "api/generation.h"
#include "files/json_value.h"

namespace heddle::serve {

enum class PartKind : uint8_t { kThoughts, kText, kCall };

/// A part of an answer.
struct AnswerPart {
  PartKind kind = PartKind::kText;
  std::string text{};        // of a call its arguments
  std::string id{}, name{};  // of a call
};

/// What becomes of one part: it begins, then grows any number of times, then ends; after that the
/// next one does.
struct PartChange {
  enum class Kind : uint8_t { kBegins, kGrows, kEnds };
  Kind kind;
  size_t part;          // its number
  std::string added{};  // kGrows: never empty
};

/// Splits an answer, which comes in pieces, into its parts. A text of nothing but spaces and line
/// ends next to thoughts or calls is no part. An answer without anything has no part.
class AnswerParts {
 public:
  explicit AnswerParts(const Generation& generation, size_t prompt = 0);

  [[nodiscard]] std::vector<PartChange> push(std::string_view text);
  /// The end of the answer.
  [[nodiscard]] std::vector<PartChange> finish();
  /// The same; an answer without anything then has one part, an empty text.
  [[nodiscard]] std::vector<PartChange> finish_with_part();
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_; }
  [[nodiscard]] bool has_calls() const;

 private:
  void take(const answers::AnswerDelta& delta);
  void add_text(std::string_view text);
  void begin(AnswerPart part);
  void grow(std::string_view text);
  void end();
  [[nodiscard]] bool is_open(PartKind kind) const;

  std::optional<answers::AnswerParser> parser_;  // absent: all is text
  std::vector<AnswerPart> parts_;
  std::vector<PartChange> changes_;
  std::string spaces_;  // that may become the beginning of a text
  bool is_open_ = false;
};

/// The texts of one kind of part, one after another.
[[nodiscard]] std::string joined(const std::vector<AnswerPart>& parts, PartKind kind);
/// The calls as a message of a chat completion has them in tool_calls.
[[nodiscard]] files::JsonArray calls_of(const std::vector<AnswerPart>& parts);

/// Tokens of the answer that are thoughts, their marks included; 0 without Request::tell_tokens.
[[nodiscard]] int64_t count_thoughts(const Generation& generation, const Completion& completion,
                                     size_t prompt = 0);

}  // namespace heddle::serve
