#include "chat_template/interpreter/operators.h"

#include <algorithm>
#include <cmath>

#include "chat_template/values/format.h"
#include "chat_template/values/string_format.h"
#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {

[[noreturn]] void fail_overflow() {
  throw_error(ErrorCode::kInvalidArgument, "an integer passes 64 bits");
}
[[noreturn]] void fail_types(std::string_view op, const Value& a, const Value& b) {
  throw_error(ErrorCode::kInvalidArgument, "unsupported operands of ", op, ": ", a.type_name(),
              " and ", b.type_name());
}
void check_divisor(bool is_zero) { HEDDLE_CHECK(!is_zero, "division by zero"); }

int64_t floor_divide(int64_t a, int64_t b) {
  check_divisor(b == 0);
  if (b == -1) {
    if (a == INT64_MIN) fail_overflow();
    return -a;
  }
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
int64_t floor_remainder(int64_t a, int64_t b) {
  check_divisor(b == 0);
  if (b == -1) return 0;  // the machine cannot divide the least integer by it
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}
int64_t multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  return result;
}
int64_t power(int64_t base, int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  int64_t result = 1;
  for (; exponent > 0; --exponent) result = multiply(result, base);  // overflows within 63 rounds
  return result;
}

double floor_remainder(double a, double b) {
  check_divisor(b == 0);
  double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  if ((b < 0) != (remainder < 0)) remainder += b;
  return remainder;
}
double floor_divide(double a, double b) {
  check_divisor(b == 0);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}
double power(double base, double exponent) {
  HEDDLE_CHECK(base != 0 || exponent >= 0, "zero to a negative power");
  HEDDLE_CHECK(base >= 0 || std::isinf(base) || std::isinf(exponent) ||
                   std::floor(exponent) == exponent || std::isnan(exponent),
               "a negative number to a fractional power");
  const double result = std::pow(base, exponent);
  HEDDLE_CHECK(!std::isinf(result) || std::isinf(base) || std::isinf(exponent),
               "the result of ** is out of range");
  return result;
}

Value apply_integers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) fail_overflow();
    return result;
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
    return result;
  }
  if (op == "*") return multiply(a, b);
  if (op == "//") return floor_divide(a, b);
  if (op == "%") return floor_remainder(a, b);
  if (op == "**" && b >= 0) return power(a, b);
  if (op == "**") return power(static_cast<double>(a), static_cast<double>(b));
  check_divisor(b == 0);
  return static_cast<double>(a) / static_cast<double>(b);
}

Value apply_floats(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "//") return floor_divide(a, b);
  if (op == "%") return floor_remainder(a, b);
  if (op == "**") return power(a, b);
  check_divisor(b == 0);
  return a / b;
}

Value repeat(Budget& budget, const Value& what, int64_t count) {
  const auto times = static_cast<size_t>(count > 0 ? count : 0);
  const size_t size = what.is_string() ? what.bytes().size() : what.sequence()->items.size();
  if (size == 0) return what;
  budget.spend_bytes(times, size * (what.is_string() ? 1 : sizeof(Value)));
  budget.spend_bytes(kObjectBytes);
  if (what.is_string()) {
    std::string result;
    result.reserve(size * times);
    for (size_t i = 0; i < times; ++i) result += what.bytes();
    return Value(std::move(result), what.string()->is_safe);
  }
  Values items;
  items.reserve(size * times);
  for (size_t i = 0; i < times; ++i) {
    items.insert(items.end(), what.sequence()->items.begin(), what.sequence()->items.end());
  }
  return Value::sequence(what.sequence()->kind, std::move(items));
}

Value concatenate(Budget& budget, const Value& a, const Value& b) {
  if (a.is_string()) {
    const bool is_safe = a.string()->is_safe || b.string()->is_safe;
    BudgetedText result(budget);
    for (const String* part : {a.string(), b.string()}) {
      is_safe && !part->is_safe ? append_escaped(result, part->bytes) : void(result += part->bytes);
    }
    return Value(result.take(), is_safe);
  }
  const Values &x = a.sequence()->items, &y = b.sequence()->items;
  budget.spend_bytes(x.size() + y.size(), sizeof(Value));
  budget.spend_bytes(kObjectBytes);
  Values items;
  items.reserve(x.size() + y.size());
  items.insert(items.end(), x.begin(), x.end());
  items.insert(items.end(), y.begin(), y.end());
  return Value::sequence(a.sequence()->kind, std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.is_string() || value.is_list() || value.is_tuple();
}

/// An index of a slice, moved into the sequence as Python does.
int64_t clamp_index(const Value* part, int64_t length, int64_t least, int64_t most,
                    int64_t absent) {
  if (part == nullptr || part->is_none()) return absent;
  HEDDLE_CHECK(part->is_integral(), "a slice with a ", part->type_name(), " as index");
  int64_t index = part->as_int();
  if (index < 0) index = index < -length ? least : index + length;
  return index < least ? least : index > most ? most : index;
}

int64_t step_of(const Value* part) {
  if (part == nullptr || part->is_none()) return 1;
  HEDDLE_CHECK(part->is_integral(), "a slice with a ", part->type_name(), " as step");
  return std::max(part->as_int(), -INT64_MAX);  // so that it has a positive counterpart
}

}  // namespace

Value apply_binary(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (op == "%" && a.is_string()) {
    if (a.string()->is_safe) throw_error(ErrorCode::kUnsupported, "% of an escaped string");
    return percent_format(budget, a.bytes(), b);
  }
  if (a.is_undefined() || b.is_undefined()) {
    throw Error(ErrorCode::kInvalidArgument, (a.is_undefined() ? a : b).why_undefined());
  }
  if (a.is_integral() && b.is_integral()) return apply_integers(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return apply_floats(op, a.as_double(), b.as_double());
  if (op == "*" && is_repeatable(a) && b.is_integral()) return repeat(budget, a, b.as_int());
  if (op == "*" && is_repeatable(b) && a.is_integral()) return repeat(budget, b, a.as_int());
  const bool are_alike = (a.is_string() && b.is_string()) || (a.is_list() && b.is_list()) ||
                         (a.is_tuple() && b.is_tuple());
  if (op == "+" && are_alike) return concatenate(budget, a, b);
  fail_types(op, a, b);
}

Value apply_sign(std::string_view op, const Value& a) {
  if (a.is_undefined()) throw Error(ErrorCode::kInvalidArgument, a.why_undefined());
  HEDDLE_CHECK(a.is_number(), "the sign ", op, " before a ", a.type_name());
  if (a.is_float()) return op == "-" ? -a.as_double() : a.as_double();
  if (op == "+") return a.as_int();
  if (a.as_int() == INT64_MIN) fail_overflow();
  return -a.as_int();
}

Value apply_slice(Budget& budget, const Value& s, const Value* start, const Value* stop,
                  const Value* step) {
  if (s.is_undefined()) throw Error(ErrorCode::kInvalidArgument, s.why_undefined());
  HEDDLE_CHECK(is_repeatable(s) || s.is_sequence(SequenceValue::Kind::kRange), "a slice of a ",
               s.type_name());
  budget.spend_bytes(kObjectBytes);
  if (s.is_string()) budget.spend_bytes(s.bytes().size(), 2);  // to count, and to find the slice in
  const auto length =
      static_cast<int64_t>(s.is_string() ? text::length(s.bytes()) : s.sequence()->items.size());
  const int64_t stride = step_of(step);
  HEDDLE_CHECK(stride != 0, "a slice with step 0");
  const bool forward = stride > 0;
  const int64_t least = forward ? 0 : -1, most = forward ? length : length - 1;
  const int64_t first = clamp_index(start, length, least, most, forward ? 0 : length - 1);
  const int64_t end = clamp_index(stop, length, least, most, forward ? length : -1);
  const int64_t distance = forward ? end - first : first - end;
  const int64_t count = distance <= 0 ? 0 : (distance - 1) / std::abs(stride) + 1;
  if (count == 0 && s.is_string()) return Value("", s.string()->is_safe);
  if (s.is_string()) {
    return Value(
        text::slice(s.bytes(), static_cast<size_t>(first), stride, static_cast<size_t>(count)),
        s.string()->is_safe);
  }
  budget.spend_bytes(static_cast<size_t>(count), sizeof(Value));
  Values items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    items.push_back(s.sequence()->items[static_cast<size_t>(first + i * stride)]);
  }
  return Value::sequence(s.sequence()->kind, std::move(items));
}

void append_escaped(BudgetedText& text, std::string_view s) {
  for (const char c : s) {
    switch (c) {
      case '&': text += "&amp;"; break;
      case '<': text += "&lt;"; break;
      case '>': text += "&gt;"; break;
      case '"': text += "&#34;"; break;
      case '\'': text += "&#39;"; break;
      default: text += c;
    }
  }
}

}  // namespace heddle::chat_template
