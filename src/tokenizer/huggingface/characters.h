#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::tokenizer {

/// The character that begins at `at`, which moves after it. `text` is UTF-8.
[[nodiscard]] char32_t take_character(std::string_view text, size_t& at);
void append_character(char32_t character, std::string& text);

/// Where the last character of `text` [1 or more] begins.
[[nodiscard]] size_t last_character(std::string_view text);

[[nodiscard]] bool is_white_space(char32_t character);  // Unicode's White_Space
[[nodiscard]] bool is_numeric(char32_t character);      // categories Nd, Nl and No
/// Of ASCII all that is shown and neither letter nor digit; of the rest the categories P.
[[nodiscard]] bool is_punctuation(char32_t character);
/// What regular expressions call \w: the alphabetic, marks, decimal digits, connectors, joiners.
[[nodiscard]] bool is_word_character(char32_t character);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// The text in a normal form of Unicode (UAX 15). Takes O(n log n), whatever its marks.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

/// Every character's lower case by itself: "Σ" is "σ" at the end of a word, too.
[[nodiscard]] std::string to_lower(std::string_view text);

}  // namespace heddle::tokenizer
