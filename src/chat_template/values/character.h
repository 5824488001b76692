// What str.isalpha() and its like ask of one character.
#pragma once

#include <cstdint>

namespace heddle::chat_template::text {

enum class CharacterKind : uint8_t {
  kLetter,
  kIdeograph,  // a letter that may also be a number
  kDecimal,
  kDigit,    // that is no decimal, such as a superscript
  kNumeric,  // that is no digit, such as a fraction
  kOther,
};

/// For ASCII, Latin, Greek, Cyrillic, Armenian, kana, Hangul, the common ideographs, punctuation
/// and emoji; others throw Error(kUnsupported).
CharacterKind kind_of(char32_t c);

}  // namespace heddle::chat_template::text
