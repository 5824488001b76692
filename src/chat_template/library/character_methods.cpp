// Methods of str that ask of what characters it is, and that put it into a wider one.
#include <algorithm>

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/character.h"
#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {

using text::CharacterKind;

/// The string that a method is called on; the method's cost is its size.
const std::string& characters_of(Call& call) {
  call.interpreter.budget.spend_bytes(call.self.bytes().size());
  return call.self.bytes();
}

/// Whether there are characters and each passes.
template <bool (*passes)(char32_t)>
Value all(Call& call) {
  const std::string& s = characters_of(call);
  for (size_t pos = 0; pos < s.size();) {
    if (!passes(text::next_code_point(s, pos))) return false;
  }
  return !s.empty();
}

bool is_decimal(char32_t c) { return text::kind_of(c) == CharacterKind::kDecimal; }
bool is_digit(char32_t c) { return is_decimal(c) || text::kind_of(c) == CharacterKind::kDigit; }
bool is_numeric(char32_t c) {
  if (text::kind_of(c) == CharacterKind::kIdeograph) {
    throw_error(ErrorCode::kUnsupported, "isnumeric of ideographs");
  }
  return is_digit(c) || text::kind_of(c) == CharacterKind::kNumeric;
}
bool is_letter(char32_t c) {
  const CharacterKind kind = text::kind_of(c);
  return kind == CharacterKind::kLetter || kind == CharacterKind::kIdeograph;
}
bool is_letter_or_number(char32_t c) { return text::kind_of(c) != CharacterKind::kOther; }

Value is_ascii(Call& call) {
  return std::ranges::all_of(characters_of(call),
                             [](char c) { return static_cast<signed char>(c) >= 0; });
}

/// s with `left` and `right` fill characters around it.
Value filled(Call& call, const std::string& s, const std::string& fill, size_t left, size_t right) {
  call.interpreter.budget.spend_bytes(left + right, fill.size());
  std::string result;
  for (size_t i = 0; i < left; ++i) result += fill;
  result += s;
  for (size_t i = 0; i < right; ++i) result += fill;
  return Value(std::move(result), call.self.string()->is_safe);
}

/// What is missing to the width of argument 0.
size_t num_missing(Call& call, const std::string& s) {
  const int64_t width = call.integer(0, 0);
  const auto length = static_cast<int64_t>(text::length(s));
  return width > length ? static_cast<size_t>(width - length) : 0;
}

std::string fill_of(Call& call) {
  if (call.arg(1) == nullptr) return " ";
  call.interpreter.budget.spend_bytes(call.text(1).size());
  HEDDLE_CHECK(text::length(call.text(1)) == 1, "the fill character must be one character");
  return call.text(1);
}

Value justify_left(Call& call) {
  const std::string& s = characters_of(call);
  return filled(call, s, fill_of(call), 0, num_missing(call, s));
}
Value justify_right(Call& call) {
  const std::string& s = characters_of(call);
  return filled(call, s, fill_of(call), num_missing(call, s), 0);
}
Value center(Call& call) {
  const std::string& s = characters_of(call);
  const size_t missing = num_missing(call, s);
  const size_t left = missing / 2 + (missing & static_cast<size_t>(call.integer(0, 0)) & 1);
  return filled(call, s, fill_of(call), left, missing - left);
}
Value fill_with_zeros(Call& call) {
  const std::string& s = characters_of(call);
  const std::string sign(s.starts_with('-') || s.starts_with('+') ? s.substr(0, 1) : "");
  const size_t missing = num_missing(call, s);
  call.interpreter.budget.spend_bytes(missing);
  return Value(sign + std::string(missing, '0') + s.substr(sign.size()),
               call.self.string()->is_safe);
}

constexpr Callable kCharacterMethods[] = {
    {.name = "isdecimal", .call = all<is_decimal>},
    {.name = "isdigit", .call = all<is_digit>},
    {.name = "isnumeric", .call = all<is_numeric>},
    {.name = "isalpha", .call = all<is_letter>},
    {.name = "isalnum", .call = all<is_letter_or_number>},
    {.name = "isspace", .call = all<text::is_space>},
    {.name = "isascii", .call = is_ascii},
    {.name = "ljust", .call = justify_left, .parameters = {"width", "fillchar"}, .required = 1},
    {.name = "rjust", .call = justify_right, .parameters = {"width", "fillchar"}, .required = 1},
    {.name = "center", .call = center, .parameters = {"width", "fillchar"}, .required = 1},
    {.name = "zfill", .call = fill_with_zeros, .parameters = {"width"}, .required = 1},
};

}  // namespace

Callables character_methods() { return kCharacterMethods; }

}  // namespace heddle::chat_template
