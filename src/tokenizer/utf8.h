#pragma once

#include <string>
#include <string_view>

namespace heddle::tokenizer {

/// `bytes` with each maximal part of a broken character, and each byte that begins none, replaced
/// by U+FFFD (Unicode 15, section 3.9, "substitution of maximal subparts"; what Python's
/// bytes.decode("utf-8", errors="replace") does).
[[nodiscard]] std::string replace_invalid_utf8(std::string_view bytes);

/// For bytes that arrive in pieces, as the tokens of a stream do: the pieces that push and
/// finish return, put together, are replace_invalid_utf8 of all bytes.
class Utf8Stream {
 public:
  /// The text that is certain after these bytes; a character cut short waits for the next call.
  [[nodiscard]] std::string push(std::string_view bytes);
  /// The rest, U+FFFD when a character was cut short; afterwards the stream is as new.
  [[nodiscard]] std::string finish();

 private:
  std::string pending_;  // at most 3 bytes: the valid beginning of a character
};

}  // namespace heddle::tokenizer
