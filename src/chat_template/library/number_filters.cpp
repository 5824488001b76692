// Filters that make numbers.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "chat_template/interpreter/eval.h"
#include "chat_template/interpreter/operators.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {
namespace of_numbers {

[[noreturn]] void fail_undefined(const Value& value) {
  throw Error(ErrorCode::kInvalidArgument, value.why_undefined());
}

bool is_digit_or_letter(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/// A number's text without white space around it and without underscores, each of which must stand
/// between digits.
std::optional<std::string> plain_digits(std::string_view s) {
  s = text::strip_right(text::strip_left(s));
  std::string result;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      result += s[i];
      continue;
    }
    if (i == 0 || i + 1 == s.size()) return std::nullopt;
    if (!is_digit_or_letter(s[i - 1]) || !is_digit_or_letter(s[i + 1])) return std::nullopt;
  }
  return result;
}

/// Python's int(text, base), nothing where that is an error.
std::optional<int64_t> parse_int(std::string_view s, int base) {
  const auto plain = plain_digits(s);
  if (!plain) return std::nullopt;
  std::string_view digits = *plain;
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.remove_prefix(1);
  const char prefix =
      digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') ||
      (base == 2 && prefix == 'b')) {
    digits.remove_prefix(2);
  }
  if (digits.empty() || !is_digit_or_letter(digits[0])) return std::nullopt;
  uint64_t size = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, size, base);
  if (result.ptr != end) return std::nullopt;
  HEDDLE_CHECK(result.ec == std::errc() && size <= uint64_t{INT64_MAX},
               "an integer passes 64 bits");
  return is_negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size);
}

/// Python's float(text), nothing where that is an error.
std::optional<double> parse_float(std::string_view s) {
  const auto plain = plain_digits(s);
  if (!plain || plain->find('(') != std::string::npos)
    return std::nullopt;  // nan(...) is C's alone
  const std::string digits = plain->starts_with('+') ? plain->substr(1) : *plain;
  if (plain->starts_with("+-")) return std::nullopt;
  double number = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, number);
  if (digits.empty() || result.ptr != end) return std::nullopt;
  // from_chars leaves the number alone where it is out of range; strtod gives infinity or zero.
  return result.ec == std::errc::result_out_of_range ? std::strtod(digits.c_str(), nullptr)
                                                     : number;
}

std::optional<double> to_float(Budget& budget, const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_number()) return value.as_double();
  if (!value.is_string()) return std::nullopt;
  budget.spend_bytes(value.bytes().size(), 2);  // to read, and the digits alone
  return parse_float(value.bytes());
}

/// Python's int(number): towards zero; nothing for a NaN.
std::optional<int64_t> truncate(double number) {
  if (std::isnan(number)) return std::nullopt;
  HEDDLE_CHECK(number >= -0x1p63 && number < 0x1p63, "an integer passes 64 bits");
  return static_cast<int64_t>(number);
}

Value to_int_filter(Call& call) {
  const Value otherwise = call.arg(0) == nullptr ? Value(int64_t{0}) : *call.arg(0);
  const int64_t base = call.integer(1, 10);
  if (base != 2 && base != 8 && base != 10 && base != 16) {
    throw_error(ErrorCode::kUnsupported, "int with base ", base);
  }
  if (call.self.is_integral()) return call.self.as_int();
  if (call.self.is_string()) {
    call.interpreter.budget.spend_bytes(call.self.bytes().size(), 2);
    if (const auto number = parse_int(call.self.bytes(), static_cast<int>(base))) return *number;
  }
  const std::optional<double> number = to_float(call.interpreter.budget, call.self);
  if (!number || (std::isinf(*number) && call.self.is_string())) return otherwise;
  const std::optional<int64_t> whole = truncate(*number);
  return whole ? Value(*whole) : otherwise;
}

Value to_float_filter(Call& call) {
  const std::optional<double> number = to_float(call.interpreter.budget, call.self);
  if (number) return *number;
  return call.arg(0) == nullptr ? Value(0.0) : *call.arg(0);
}

/// To the nearest decimal, judged by the exact value as Python does, ties to even.
double round_decimal(double number, int precision) {
  if (!std::isfinite(number)) return number;
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.*f", precision, number);
  double result = 0;
  std::from_chars(digits, digits + sizeof digits, result);
  return result;
}

Value round(Call& call) {
  if (call.self.is_undefined()) fail_undefined(call.self);
  HEDDLE_CHECK(call.self.is_number(), "round of a ", call.self.type_name());
  const int64_t precision = call.integer(0, 0);
  const std::string method = call.arg(1) == nullptr ? "common" : call.text(1);
  if (precision < 0 || precision > 50) {
    throw_error(ErrorCode::kUnsupported, "round to ", precision, " digits");
  }
  if (method == "common") {
    if (call.self.is_integral()) return call.self.as_int();
    return round_decimal(call.self.as_double(), static_cast<int>(precision));
  }
  HEDDLE_CHECK(method == "ceil" || method == "floor",
               "round takes common, ceil or floor as method");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.self.as_double() * scale;
  HEDDLE_CHECK(std::isfinite(scaled), "round of a number that is not finite");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale + 0.0;  // never -0.0
}

Value absolute(Call& call) {
  if (call.self.is_undefined()) fail_undefined(call.self);
  HEDDLE_CHECK(call.self.is_number(), "abs of a ", call.self.type_name());
  if (call.self.is_float()) return std::abs(call.self.as_double());
  const int64_t number = call.self.as_int();
  return number < 0 ? apply_sign("-", number) : Value(number);
}

constexpr Callable kFilters[] = {
    {.name = "int", .call = to_int_filter, .parameters = {"default", "base"}},
    {.name = "float", .call = to_float_filter, .parameters = {"default"}},
    {.name = "round", .call = round, .parameters = {"precision", "method"}},
    {.name = "abs", .call = absolute},
};

}  // namespace of_numbers
}  // namespace

Callables number_filters() { return of_numbers::kFilters; }

}  // namespace heddle::chat_template
