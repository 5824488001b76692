#include "files/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <boost/json/value.hpp>

namespace heddle::files {
namespace {

/// Length of the longest beginning of a UTF-8 sequence at the start of `text`, at least 1; `whole`:
/// the sequence is complete.
size_t sequence_length(std::string_view text, bool& whole) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  whole = lead < 0x80;
  if (whole || lead < 0xC2 || lead > 0xF4) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  // Overlong forms, surrogates and what lies past U+10FFFF show in the second byte.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t i = 1;
  while (i < length && i < text.size() && byte(i) >= (i == 1 ? low : 0x80) &&
         byte(i) <= (i == 1 ? high : 0xBF)) {
    ++i;
  }
  whole = i == length;
  return i;
}

void append_control(std::string& text, unsigned char c) {
  static constexpr char kDigits[] = "0123456789abcdef";
  text += "\\u00";
  text += kDigits[c >> 4];
  text += kDigits[c & 15];
}

template <class Integer>
void append_integer(std::string& text, Integer number) {
  std::array<char, 24> digits;
  text.append(digits.data(),
              std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

void append_array(std::string& text, const JsonArray& array) {
  text += '[';
  bool is_first = true;
  for (const Json& element : array) {
    if (!std::exchange(is_first, false)) text += ',';
    append_json(text, element);
  }
  text += ']';
}

void append_members(std::string& text, const JsonObject& object, std::string_view before) {
  bool is_first = true;
  for (const auto& member : object) {
    if (!std::exchange(is_first, false)) text += ',';
    text += before;
    append_json_string(text, member.key());
    text += before.empty() ? ":" : ": ";
    append_json(text, member.value());
  }
}

}  // namespace

void append_json_string(std::string& text, std::string_view string) {
  static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  text += '"';
  for (size_t i = 0; i < string.size();) {
    const char c = string[i];
    if (const size_t escape = kEscaped.find(c); escape != kEscaped.npos) {
      text += '\\';
      text += kLetters[escape];
      ++i;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      append_control(text, static_cast<unsigned char>(c));
      ++i;
    } else {
      bool whole = false;
      const size_t length = sequence_length(string.substr(i), whole);
      text += whole ? string.substr(i, length) : "\uFFFD";
      i += length;
    }
  }
  text += '"';
}

void append_json(std::string& text, double number) {
  // The digits are written out where the decimal point is near them.
  constexpr int kLeastExponent = -5, kMostExponent = 14;
  if (!std::isfinite(number)) {
    text += "null";
    return;
  }
  std::array<char, 32> buffer;
  const char* const end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                        std::abs(number), std::chars_format::scientific)
                              .ptr;
  const std::string_view all(buffer.data(), end);  // "1.25e+02"
  const size_t e = all.find('e');
  const int exponent = std::atoi(std::string(all.substr(e + 1)).c_str());
  std::string digits(all.substr(0, 1));
  if (e > 1) digits += all.substr(2, e - 2);
  if (std::signbit(number)) text += '-';
  const int size = static_cast<int>(digits.size());
  if (exponent < kLeastExponent + 1 || exponent > kMostExponent) {
    text += all.substr(0, e);
    text += all.substr(e);
  } else if (exponent < 0) {
    text += "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (size <= exponent + 1) {
    text += digits + std::string(static_cast<size_t>(exponent + 1 - size), '0') + ".0";
  } else {
    const auto whole = static_cast<size_t>(exponent + 1);
    text.append(digits, 0, whole).append(1, '.').append(digits, whole);
  }
}

void append_json(std::string& text, const JsonObject& object) {
  text += '{';
  append_members(text, object, "");
  text += '}';
}

void append_json(std::string& text, const Json& value) {
  using boost::json::kind;
  switch (value.kind()) {
    case kind::null: text += "null"; return;
    case kind::bool_: text += value.get_bool() ? "true" : "false"; return;
    case kind::int64: return append_integer(text, value.get_int64());
    case kind::uint64: return append_integer(text, value.get_uint64());
    case kind::double_: return append_json(text, value.get_double());
    case kind::string: return append_json_string(text, value.get_string());
    case kind::array: return append_array(text, value.get_array());
    case kind::object: return append_json(text, value.get_object());
  }
}

std::string json_text(const Json& value) {
  std::string text;
  append_json(text, value);
  return text;
}

std::string json_text(const JsonObject& object) {
  std::string text;
  append_json(text, object);
  return text;
}

std::string json_text(double number) {
  std::string text;
  append_json(text, number);
  return text;
}

std::string json_string(std::string_view string) {
  std::string text;
  append_json_string(text, string);
  return text;
}

std::string json_lines(const JsonObject& object) {
  std::string text = "{";
  append_members(text, object, "\n ");
  return text + "\n}";
}

}  // namespace heddle::files
