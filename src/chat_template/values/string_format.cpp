// The mini-language of Python's format().
#include "chat_template/values/string_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "chat_template/values/format.h"
#include "chat_template/values/text.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

constexpr size_t kLongestFloat = 400;  // digits of the largest double and its sign
constexpr int64_t kMostDigits = 1100;  // after the point; all further ones are zeros

bool is_one_of(char c, std::string_view set) { return c != '\0' && set.find(c) != set.npos; }

/// Digits at spec[pos]; -1 where there are none.
int64_t read_count(std::string_view spec, size_t& pos) {
  if (pos == spec.size() || spec[pos] < '0' || spec[pos] > '9') return -1;
  int64_t count = 0;
  for (; pos < spec.size() && spec[pos] >= '0' && spec[pos] <= '9'; ++pos) {
    count = count * 10 + (spec[pos] - '0');
    HEDDLE_CHECK(count <= INT32_MAX, "a format asks for more than ", INT32_MAX, " characters");
  }
  return count;
}

FormatSpec parse_spec(std::string_view s) {
  FormatSpec spec;
  size_t pos = 0, after = 0;
  const auto at = [&](size_t i) { return i < s.size() ? s[i] : '\0'; };
  const char32_t first = s.empty() ? U'\0' : text::next_code_point(s, after);
  if (is_one_of(at(after), "<>=^")) {
    spec.fill = first;
    spec.align = s[after];
    pos = after + 1;
  } else if (is_one_of(at(0), "<>=^")) {
    spec.align = s[pos++];
  }
  const bool has_fill = pos > 1;
  if (is_one_of(at(pos), "+- ")) spec.sign = s[pos++];
  if (at(pos) == 'z') throw_error(ErrorCode::kUnsupported, "'z' in a format");
  if (at(pos) == '#') spec.is_alternate = ++pos > 0;
  if (at(pos) == '0' && !has_fill) {
    spec.has_zeros = true;
    spec.fill = U'0';
    ++pos;
  }
  spec.width = std::max<int64_t>(read_count(s, pos), 0);
  if (is_one_of(at(pos), ",_")) spec.grouping = s[pos++];
  if (at(pos) == '.') {
    spec.precision = read_count(s, ++pos);
    HEDDLE_CHECK(spec.precision >= 0, "a format has no digits after its point");
  }
  if (pos < s.size()) spec.type = s[pos++];
  HEDDLE_CHECK(pos == s.size(), "the format ", files::quote(s), " is not valid");
  return spec;
}

/// A separator after every third digit of the whole part from the right, every fourth of other
/// bases than 10.
std::string with_grouping(const std::string& digits, char separator, bool is_decimal) {
  const size_t size = is_decimal ? 3 : 4;
  const char* known = is_decimal ? "0123456789" : "0123456789abcdefABCDEF";
  const size_t whole = std::min(digits.find_first_not_of(known), digits.size());
  std::string result;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) result += separator;
    result += digits[i];
  }
  return result + digits.substr(whole);
}

struct Number {
  bool is_negative;
  std::string prefix, digits;
};

Number integer_parts(const Value& value, const FormatSpec& spec) {
  const int64_t number = value.as_int();
  const bool is_negative = number < 0;
  uint64_t rest = is_negative ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const char type = spec.type;
  const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  const char* letters = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), letters[rest % base]);
    rest /= base;
  } while (rest != 0);
  const bool has_prefix = spec.is_alternate && base != 10;
  return {is_negative, has_prefix ? std::string("0") + type : "", std::move(digits)};
}

Number float_parts(Budget& budget, double number, const FormatSpec& spec) {
  const bool is_percent = spec.type == '%';
  if (is_percent) number *= 100;
  const bool is_negative = std::signbit(number) && !std::isnan(number);
  number = std::abs(number);
  if (spec.type == '\0' && spec.precision < 0) return {is_negative, "", repr_of(number)};
  if (spec.type == '\0') {
    throw_error(ErrorCode::kUnsupported, "a format of a float with a precision and without a type");
  }
  const char type = is_percent ? 'f' : spec.type;
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  const auto exact = static_cast<int>(std::min(precision, kMostDigits));
  const auto num_zeros = static_cast<size_t>(precision - exact);
  const bool is_general = type == 'g' || type == 'G';
  if (is_general && spec.is_alternate && num_zeros > 0) {
    throw_error(ErrorCode::kUnsupported, "a format of a float with ", precision, " digits");
  }
  const size_t size = static_cast<size_t>(exact) + kLongestFloat;
  budget.spend_bytes(size + (is_general ? 0 : 2 * num_zeros));
  std::string digits(size, '\0');
  const char alternate[] = {'%', '#', '.', '*', type, '\0'}, plain[] = {'%', '.', '*', type, '\0'};
  digits.resize(static_cast<size_t>(
      std::snprintf(digits.data(), size, spec.is_alternate ? alternate : plain, exact, number)));
  if (!is_general && std::isfinite(number)) {
    digits.insert(std::min(digits.find_first_of("eE"), digits.size()), num_zeros, '0');
  }
  if (is_percent) digits += '%';
  return {is_negative, "", std::move(digits)};
}

}  // namespace

std::string pad_text(Budget& budget, std::string_view text, const FormatSpec& spec) {
  budget.spend_bytes(text.size(), 2);
  const auto length = static_cast<int64_t>(text::length(text));
  const auto missing = static_cast<size_t>(std::max<int64_t>(spec.width - length, 0));
  std::string fill;
  text::append_code_point(fill, spec.fill);
  budget.spend_bytes(missing, fill.size());
  const size_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  std::string result;
  for (size_t i = 0; i < left; ++i) result += fill;
  result += text;
  for (size_t i = left; i < missing; ++i) result += fill;
  return result;
}

std::string format_number(Budget& budget, const Value& value, const FormatSpec& spec) {
  const bool is_integer = value.is_integral() && !is_one_of(spec.type, "eEfFgG%");
  HEDDLE_CHECK(is_one_of(spec.type, is_integer ? "bdoxX" : "eEfFgG%") || spec.type == '\0',
               "the format '", files::printable(std::string(1, spec.type)), "' of a ",
               value.type_name());
  HEDDLE_CHECK(!is_integer || spec.precision < 0, "a precision in the format of an integer");
  Number number =
      is_integer ? integer_parts(value, spec) : float_parts(budget, value.as_double(), spec);
  if (spec.grouping != '\0') {
    if (spec.has_zeros || spec.align == '=') {
      throw_error(ErrorCode::kUnsupported, "zeros and thousands in one format");
    }
    const bool is_decimal = !is_integer || spec.type == 'd' || spec.type == '\0';
    HEDDLE_CHECK(is_decimal || spec.grouping == '_', "',' with the format '", spec.type, "'");
    number.digits = with_grouping(number.digits, spec.grouping, is_decimal);
  }
  std::string front;
  if (number.is_negative || spec.sign != '-') front += number.is_negative ? '-' : spec.sign;
  front += number.prefix;
  FormatSpec padding = spec;
  if (padding.align == '\0') padding.align = spec.has_zeros ? '=' : '>';
  if (padding.align != '=') return pad_text(budget, front + number.digits, padding);
  padding.align = '>';
  padding.width -= static_cast<int64_t>(front.size());
  return front + pad_text(budget, number.digits, padding);
}

std::string format_value(Budget& budget, const Value& value, std::string_view spec_text) {
  budget.spend_bytes(spec_text.size() + kObjectBytes);
  if (spec_text.empty()) return to_text(budget, value);
  HEDDLE_CHECK(value.is_string() || value.is_number(), "the format ", files::quote(spec_text),
               " of a ", value.type_name());
  const FormatSpec spec = parse_spec(spec_text);
  if (value.is_integral() && (spec.type == 'c' || spec.type == 'n')) {
    throw_error(ErrorCode::kUnsupported, "the format '", spec.type, "'");
  }
  if (value.is_number()) return format_number(budget, value, spec);
  HEDDLE_CHECK((spec.type == 's' || spec.type == '\0') && spec.align != '=' && spec.sign == '-' &&
                   !spec.is_alternate && spec.grouping == '\0',
               "the format ", files::quote(spec_text), " of a str");
  std::string_view text = value.bytes();
  budget.spend_bytes(text.size());
  if (spec.precision >= 0) {
    text = text.substr(0, text::byte_offset(text, static_cast<size_t>(spec.precision)));
  }
  return pad_text(budget, text, spec);
}

std::string to_ascii_repr(Budget& budget, const Value& value) {
  const std::string repr = to_repr(budget, value);
  BudgetedText result(budget);
  for (size_t pos = 0; pos < repr.size();) {
    const char32_t c = text::next_code_point(repr, pos);
    char escape[16];
    const char* format = c < 0x80      ? "%c"
                         : c < 0x100   ? "\\x%02x"
                         : c < 0x10000 ? "\\u%04x"
                                       : "\\U%08x";
    std::snprintf(escape, sizeof escape, format, static_cast<unsigned>(c));
    result += c == 0 ? std::string_view("\0", 1) : std::string_view(escape);
  }
  return result.take();
}

}  // namespace heddle::chat_template
