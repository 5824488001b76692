#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::answers {

/// Follows one JSON value byte by byte: constant time for each, without recursion. Bytes below 0x20
/// pass inside strings, since models write line ends there; whoever reads the value escapes them.
class JsonScanner {
 public:
  enum class Step : uint8_t {
    kInside,  // the byte is of the value, or space before it
    kLast,    // the byte is the last of the value
    kPast,    // the value, a number, has ended before the byte
    kWrong    // the byte makes it no JSON, or nests it deeper than kMaxDepth
  };
  static constexpr size_t kMaxDepth = 128;

  [[nodiscard]] Step take(char byte);
  /// Whether the next byte is one of a string's text.
  [[nodiscard]] bool in_string() const { return state_ == State::kString; }

 private:
  enum class State : uint8_t {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kDigits,
    kDot,
    kFraction,
    kExponent,
    kSign,
    kPower,
    kComma
  };
  [[nodiscard]] Step take_value(char byte);
  [[nodiscard]] Step take_number(char byte);
  [[nodiscard]] Step take_inner(char byte);
  [[nodiscard]] Step open(char bracket);
  [[nodiscard]] Step close(char bracket);
  [[nodiscard]] Step move(State state);
  [[nodiscard]] Step end();

  State state_ = State::kValue;
  bool is_key_ = false;
  int hex_ = 0;                 // digits of \uXXXX yet to come
  std::string_view literal_{};  // what is left of true, false or null
  std::string brackets_{};      // that are open
};

/// Whether JSON, and models, take it for space.
[[nodiscard]] inline bool is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/// Appends a byte of a JSON string's text. Bytes of characters beyond ASCII stay as they are.
void append_escaped(std::string& json, char byte);
/// The text as a JSON string, byte by byte as above.
[[nodiscard]] std::string escaped_string(std::string_view text);

}  // namespace heddle::answers
