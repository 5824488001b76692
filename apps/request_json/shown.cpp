#include "request_json/shown.h"

#include <algorithm>

#include "files/json_text.h"

namespace heddle::app {
namespace {

/// The beginning of `text`, which ends between two characters.
std::string_view cut(std::string_view text, size_t longest) {
  if (text.size() <= longest) return text;
  size_t end = longest;
  while (end > 0 && longest - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

/// A character that JSON leaves as it is and a terminal does not merely show: DEL, U+0080 to
/// U+009F, the ends of lines and paragraphs, and what turns the direction of text.
struct Control {
  unsigned code_point;
  size_t size;  // in UTF-8; 0: the text begins with none
};
Control control_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return {0, 0};
  if (byte(0) == 0x7F) return {0x7F, 1};
  if (text.size() >= 2 && byte(0) == 0xC2 && byte(1) < 0xA0) return {byte(1), 2};
  if (text.size() < 3 || byte(0) != 0xE2 || (byte(1) != 0x80 && byte(1) != 0x81)) return {0, 0};
  const unsigned c = 0x2000u | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
  const bool turns =
      c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return {c, turns ? size_t{3} : size_t{0}};
}

std::string escape_controls(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const auto [code_point, size] = control_of(text);
    if (size == 0) {
      result += text[0];
    } else {
      result += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) result += kDigits[code_point >> shift & 15];
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return result;
}

std::string as_json(std::string_view text) { return escape_controls(files::json_string(text)); }

}  // namespace

std::string shown(std::string_view text, size_t longest) {
  const std::string_view start = cut(text, longest);
  std::string line;
  for (size_t begin = 0; begin < start.size();) {  // quotes and backslashes stay
    const size_t end = std::min(start.find_first_of("\"\\", begin), start.size());
    const std::string part = as_json(start.substr(begin, end - begin));
    line.append(part, 1, part.size() - 2);
    if (end < start.size()) line += start[end];
    begin = end + 1;
  }
  return start.size() < text.size() ? line + "..." : line;
}

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 60;
  const std::string_view start = cut(text, kLongest);
  return as_json(std::string(start) + (start.size() < text.size() ? "..." : ""));
}

/// By table 3-7 of Unicode 15: the range of the second byte keeps out what is written too long,
/// surrogates, and what is above U+10FFFF.
bool is_utf8(std::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char first = byte(i++);
    if (first < 0x80) continue;
    if (first < 0xC2 || first > 0xF4) return false;
    const size_t num_more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (text.size() - i < num_more || byte(i) < low || byte(i) > high) return false;
    for (size_t j = i + 1; j < i + num_more; ++j) {
      if ((byte(j) & 0xC0) != 0x80) return false;
    }
    i += num_more;
  }
  return true;
}

}  // namespace heddle::app
