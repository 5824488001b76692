#pragma once

#include <string>
#include <string_view>

namespace heddle::tokenizer {

/// The bytes that `spelling` stands for in the alphabet of byte-level BPE, which gives each of the
/// 256 bytes a printable character: itself as a Latin-1 character where that is visible, else the
/// next one from U+0100 on, so that a space is "Ġ". A text with a character outside that alphabet
/// stands for itself.
[[nodiscard]] std::string bytes_of_spelling(std::string_view spelling);

/// Whether all characters are of that alphabet, so that the spelling stands for other bytes.
[[nodiscard]] bool is_spelling(std::string_view text);

/// `bytes` in that alphabet.
[[nodiscard]] std::string spelling_of_bytes(std::string_view bytes);

}  // namespace heddle::tokenizer
