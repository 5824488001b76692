#include "files/printable.h"

namespace heddle::files {
namespace {

/// Length of the well-formed UTF-8 sequence at the start of `text`, 0 where there is none.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies past U+10FFFF show in the second byte.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

/// Whether a terminal would do something else with the character of these bytes than show it:
/// controls, U+0080 to U+009F among them, the ends of lines and paragraphs, and what turns the
/// direction of text (U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069).
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  const unsigned char last = byte(2);
  if (byte(1) == 0x80) return last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE);
  return byte(1) == 0x81 && last >= 0xA6 && last <= 0xA9;
}

}  // namespace

std::string printable(std::string_view text, size_t longest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (result.size() >= longest) return result + "...";
    const size_t length = sequence_length(text.substr(i));
    if (length == 0 || is_control(text.substr(i, length))) {
      const unsigned char c = static_cast<unsigned char>(text[i]);
      result += "\\x";
      result += kDigits[c >> 4];
      result += kDigits[c & 15];
      ++i;
    } else {
      result += text.substr(i, length);
      i += length;
    }
  }
  return result;
}

}  // namespace heddle::files
