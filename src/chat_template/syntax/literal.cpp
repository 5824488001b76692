#include "chat_template/syntax/literal.h"

#include <cstdio>

#include "heddle/core/error.h"

#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {

constexpr std::string_view kSimple = "\\'\"abfnrtv";
constexpr std::string_view kSimpleValues = "\\'\"\a\b\f\n\r\t\v";

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/// Reads up to `most` digits at body[pos], which moves after them.
char32_t read_digits(std::string_view body, size_t& pos, int least, int most, int base) {
  char32_t value = 0;
  int count = 0;
  for (; count < most && pos < body.size() && digit_value(body[pos]) < base; ++count, ++pos) {
    value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit_value(body[pos]));
  }
  HEDDLE_CHECK(count >= least && value <= 0x10FFFF, "a truncated or too large escape in a string");
  if (value >= 0xD800 && value < 0xE000) {
    throw_error(ErrorCode::kUnsupported, "a string holds a surrogate, which UTF-8 has no form for");
  }
  return value;
}

/// A backslash before a character beyond ASCII is no escape, yet jinja2 shows that character by its
/// number: it writes everything beyond ASCII as escapes first, and the backslash then makes that
/// escape a literal one.
void append_escaped_number(std::string& result, char32_t c) {
  char number[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(number, sizeof number, format, static_cast<unsigned>(c));
  result += number;
}

bool is_digit_of(char c, int base) { return digit_value(c) < base; }

/// The end of digits with single underscores between them; `pos` itself where there is no digit.
size_t digits_end(std::string_view source, size_t pos, int base) {
  size_t end = pos;
  const auto is_joint = [&] {
    return source[end] == '_' && end > pos && source[end - 1] != '_' && end + 1 < source.size() &&
           is_digit_of(source[end + 1], base);
  };
  while (end < source.size() && (is_digit_of(source[end], base) || is_joint())) ++end;
  return end;
}

/// The end of what makes the integer that ends at `integer` a float: a fraction, an exponent or
/// both.
size_t float_end(std::string_view source, size_t integer) {
  const auto at = [&](size_t i) { return i < source.size() ? source[i] : '\0'; };
  size_t end = integer;
  if (at(end) == '.') {
    const size_t fraction = digits_end(source, end + 1, 10);
    if (fraction > end + 1) end = fraction;
  }
  if ((at(end) | 0x20) == 'e') {
    const size_t digits = end + (at(end + 1) == '-' || at(end + 1) == '+' ? 2 : 1);
    const size_t exponent = digits_end(source, digits, 10);
    if (exponent > digits) end = exponent;
  }
  return end;
}

}  // namespace

NumberLiteral scan_number(std::string_view source, size_t pos) {
  const auto at = [&](size_t i) { return i < source.size() ? source[i] : '\0'; };
  const char prefix = static_cast<char>(at(pos + 1) | 0x20);
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  if (at(pos) == '0' && base != 10) {
    const size_t digits = pos + (at(pos + 2) == '_' ? 3 : 2);
    const size_t end = digits_end(source, digits, base);
    if (end > digits) return {end, false};
  }
  const size_t integer = digits_end(source, pos, 10);
  const bool after_dot = pos > 0 && source[pos - 1] == '.';  // x.0.1 is two steps, not 0.1
  const size_t end = after_dot ? integer : float_end(source, integer);
  if (end > integer) return {end, true};
  if (at(pos) != '0') return {integer, false};
  size_t zeros = pos;  // no other digits follow a zero: 007 is 00 and 7, a syntax error later
  while (at(zeros) == '0') ++zeros;
  return {zeros, false};
}

std::string unescape_string(std::string_view body) {
  std::string result;
  for (size_t pos = 0; pos < body.size();) {
    if (body[pos] != '\\') {
      result += body[pos++];
      continue;
    }
    const char escape = ++pos < body.size() ? body[pos] : '\0';
    if (const size_t simple = kSimple.find(escape); simple != kSimple.npos) {
      result += kSimpleValues[simple];
      ++pos;
    } else if (escape == '\n') {
      ++pos;  // a line that goes on
    } else if (escape >= '0' && escape <= '7') {
      text::append_code_point(result, read_digits(body, pos, 1, 3, 8));
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      const int digits = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      text::append_code_point(result, read_digits(body, ++pos, digits, digits, 16));
    } else if (escape == 'N') {
      throw_error(ErrorCode::kUnsupported, "\\N{...} in a string");
    } else if (static_cast<unsigned char>(escape) >= 0x80) {
      append_escaped_number(result, text::next_code_point(body, pos));
    } else {
      result += '\\';  // an unknown escape stands for itself
    }
  }
  return result;
}

}  // namespace heddle::chat_template
