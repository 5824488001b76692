#include "engine/rules/schema/number_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/rules/schema/grammar_rules.h"
#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::grammar {
namespace {

constexpr size_t kMaxDigits = 15;         // of a number; a double holds them exactly
constexpr size_t kUsualDigits = 9;        // before the point, where a range has no end
constexpr size_t kMinFractionDigits = 6;  // that an answer may have in a range

std::string any_digits(size_t min, size_t max) {
  if (max == 0) return "";
  if (min == 1 && max == 1) return "[0-9]";
  return "[0-9]{" + std::to_string(min) + ',' + std::to_string(max) + '}';
}

std::string zeros(size_t min, size_t max) {
  return max == 0 ? "" : "\"0\"{" + std::to_string(min) + ',' + std::to_string(max) + '}';
}

std::string digit_between(char low, char high) { return std::string("[") + low + '-' + high + ']'; }

std::string sequence(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty() && !part.empty()) text += ' ';
    text += part;
  }
  return text;
}

/// EBNF of alternatives, of which an empty one is the empty text.
class Choice {
 public:
  void add(std::string alternative) {
    alternatives_.push_back(alternative.empty() ? "\"\"" : std::move(alternative));
  }
  [[nodiscard]] bool empty() const { return alternatives_.empty(); }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const std::string& alternative : alternatives_) {
      text += (text.empty() ? "(" : " | ") + alternative;
    }
    return text + ')';
  }

 private:
  std::vector<std::string> alternatives_{};
};

// Integers of a number of digits, which may begin with zeros.

std::string at_least(std::string_view low) {
  if (low.find_first_not_of('0') == low.npos) return any_digits(low.size(), low.size());
  Choice choice;
  choice.add(sequence({literal(low.substr(0, 1)), at_least(low.substr(1))}));
  if (low[0] < '9') {
    choice.add(sequence({digit_between(static_cast<char>(low[0] + 1), '9'),
                         any_digits(low.size() - 1, low.size() - 1)}));
  }
  return choice.text();
}

std::string at_most(std::string_view high) {
  if (high.find_first_not_of('9') == high.npos) return any_digits(high.size(), high.size());
  Choice choice;
  choice.add(sequence({literal(high.substr(0, 1)), at_most(high.substr(1))}));
  if (high[0] > '0') {
    choice.add(sequence({digit_between('0', static_cast<char>(high[0] - 1)),
                         any_digits(high.size() - 1, high.size() - 1)}));
  }
  return choice.text();
}

std::string between(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  const std::string_view first = low.substr(0, 1);
  if (low[0] == high[0]) {
    return sequence({literal(first), between(low.substr(1), high.substr(1))});
  }
  Choice choice;
  choice.add(sequence({literal(first), at_least(low.substr(1))}));
  if (high[0] - low[0] > 1) {
    choice.add(
        sequence({digit_between(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                  any_digits(low.size() - 1, low.size() - 1)}));
  }
  choice.add(sequence({literal(high.substr(0, 1)), at_most(high.substr(1))}));
  return choice.text();
}

std::string whole_numbers(uint64_t low, uint64_t high) {
  const std::string from = std::to_string(low), to = std::to_string(high);
  if (from.size() == to.size()) return between(from, to);
  Choice choice;
  choice.add(between(from, std::string(from.size(), '9')));
  if (to.size() - from.size() > 1) {
    choice.add(sequence({"[1-9]", any_digits(from.size(), to.size() - 2)}));
  }
  choice.add(between('1' + std::string(to.size() - 1, '0'), to));
  return choice.text();
}

/// Up to so many digits, not all of them zeros.
std::string not_zero(size_t num_digits) {
  if (num_digits == 1) return "[1-9]";
  Choice choice;
  choice.add(sequence({"[1-9]", any_digits(0, num_digits - 1)}));
  choice.add(sequence({literal("0"), not_zero(num_digits - 1)}));
  return choice.text();
}

/// Fractions, with up to so many digits.
class Fractions {
 public:
  explicit Fractions(size_t num_digits) : num_digits_(num_digits) {}

  [[nodiscard]] std::string any() const { return "(\".\" " + any_digits(1, num_digits_) + ")?"; }
  [[nodiscard]] std::string from(const NumberBound& low) const {
    if (low.value.fraction.empty() && !low.is_open) return any();
    return sequence({"\".\"", from(low, 0)});
  }
  /// Empty: none.
  [[nodiscard]] std::string up_to(const NumberBound& high) const {
    if (high.value.fraction.empty()) {
      return high.is_open ? "" : "(\".\" " + zeros(1, num_digits_) + ")?";
    }
    return "(\".\" " + up_to(high, 0) + ")?";
  }
  /// From `low`, which is less than `high`, or equal and both are within.
  [[nodiscard]] std::string between(const NumberBound& low, const NumberBound& high) const {
    const bool may_be_absent = low.value.fraction.empty() && !low.is_open;
    if (high.value.fraction.empty()) return up_to(high);
    return sequence({"(\".\"", between(low, high, 0), may_be_absent ? ")?" : ")"});
  }

 private:
  [[nodiscard]] size_t rest(size_t i) const { return num_digits_ - i; }

  [[nodiscard]] std::string from(const NumberBound& low, size_t i) const {
    const std::string& digits = low.value.fraction;
    if (i == digits.size()) {
      if (!low.is_open) return any_digits(0, rest(i));
      return not_zero(rest(i));
    }
    Choice choice;
    choice.add(sequence({literal({&digits[i], 1}), from(low, i + 1)}));
    if (digits[i] < '9') {
      choice.add(sequence(
          {digit_between(static_cast<char>(digits[i] + 1), '9'), any_digits(0, rest(i) - 1)}));
    }
    return choice.text();
  }

  [[nodiscard]] std::string up_to(const NumberBound& high, size_t i) const {
    const std::string& digits = high.value.fraction;
    if (i == digits.size()) return zeros(0, rest(i));
    Choice choice;
    if (i > 0) choice.add("");
    if (digits[i] > '0') {
      choice.add(sequence(
          {digit_between('0', static_cast<char>(digits[i] - 1)), any_digits(0, rest(i) - 1)}));
    }
    const bool is_end = i + 1 == digits.size();
    if (!is_end || !high.is_open) {
      choice.add(sequence({literal({&digits[i], 1}), up_to(high, i + 1)}));
    }
    return choice.text();
  }

  [[nodiscard]] std::string between(const NumberBound& low, const NumberBound& high,
                                    size_t i) const {
    const std::string &from_digits = low.value.fraction, &to_digits = high.value.fraction;
    if (i == to_digits.size()) return zeros(0, rest(i));  // both bounds are here
    const bool is_low_over = i >= from_digits.size();
    const char low_digit = is_low_over ? '0' : from_digits[i], high_digit = to_digits[i];
    Choice choice;
    if (i > 0 && is_low_over && !low.is_open) choice.add("");
    if (low_digit == high_digit) {
      choice.add(sequence({literal({&high_digit, 1}), between(low, high, i + 1)}));
      return choice.text();
    }
    NumberBound above = low;
    while (above.value.fraction.size() <= i) above.value.fraction += '0';
    choice.add(sequence({literal({&low_digit, 1}), from(above, i + 1)}));
    if (high_digit - low_digit > 1) {
      choice.add(sequence(
          {digit_between(static_cast<char>(low_digit + 1), static_cast<char>(high_digit - 1)),
           any_digits(0, rest(i) - 1)}));
    }
    const bool is_end = i + 1 == to_digits.size();
    if (!is_end || !high.is_open) {
      choice.add(sequence({literal({&high_digit, 1}), up_to(high, i + 1)}));
    }
    return choice.text();
  }

  size_t num_digits_;
};

uint64_t integer_of_digits(const std::string& digits) { return std::stoull(digits); }

int compare(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int order = a.whole.compare(b.whole); order != 0) return order;
  return a.fraction.compare(b.fraction);
}

/// Numbers of a range without a sign.
std::string magnitudes(const NumberBound& low, const std::optional<NumberBound>& high) {
  size_t num_whole = std::max(low.value.whole.size(), high ? high->value.whole.size() : 0);
  if (!high) num_whole = std::max(num_whole, kUsualDigits);
  const size_t num_given =
      std::max(low.value.fraction.size(), high ? high->value.fraction.size() : 0);
  const size_t num_fraction =
      std::min(std::max(num_given + 2, kMinFractionDigits), kMaxDigits - num_whole);
  if (num_fraction <= num_given) return "";
  const Fractions fractions(num_fraction);
  const uint64_t first = integer_of_digits(low.value.whole);
  if (high) {
    const int order = compare(low.value, high->value);
    if (order > 0 || (order == 0 && (low.is_open || high->is_open))) return "";
    if (low.value.whole == high->value.whole) {
      return sequence({literal(low.value.whole), fractions.between(low, *high)});
    }
  }
  Choice choice;
  choice.add(sequence({literal(low.value.whole), fractions.from(low)}));
  const uint64_t last = high ? integer_of_digits(high->value.whole)
                             : integer_of_digits('1' + std::string(num_whole, '0'));
  if (last - first > 1) {
    choice.add(sequence({whole_numbers(first + 1, last - 1), fractions.any()}));
  }
  if (high) {
    const bool is_absent = high->value.fraction.empty() && high->is_open;
    if (!is_absent) choice.add(sequence({literal(high->value.whole), fractions.up_to(*high)}));
  }
  return choice.text();
}

NumberBound magnitude(NumberBound bound) {
  bound.value.is_negative = false;
  return bound;
}

}  // namespace

std::optional<Decimal> decimal_of(const files::Json& number) {
  std::string text = files::json_text(number);
  Decimal result;
  if (text[0] == '-') {
    result.is_negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const size_t e = text.find('e'); e != text.npos) {
    exponent = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  const auto limit = static_cast<int64_t>(kMaxDigits);
  int64_t num_whole = static_cast<int64_t>(point) + exponent;
  const size_t first = digits.find_first_not_of('0');
  if (first == digits.npos) return Decimal{};
  digits.erase(0, first);
  num_whole -= static_cast<int64_t>(first);
  digits.resize(digits.find_last_not_of('0') + 1);
  if (num_whole > limit || num_whole < -limit) return std::nullopt;
  if (num_whole <= 0) {
    result.fraction = std::string(static_cast<size_t>(-num_whole), '0') + digits;
  } else {
    const auto count = static_cast<size_t>(num_whole);
    if (digits.size() < count) digits.resize(count, '0');
    result.whole = digits.substr(0, count);
    result.fraction = digits.substr(count);
  }
  if (result.fraction.size() > kMaxDigits) return std::nullopt;
  return result;
}

std::string integers(int64_t low, int64_t high) {
  const auto without_sign = [](int64_t value) {
    return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  };
  Choice choice;
  if (high >= 0) {
    choice.add(whole_numbers(static_cast<uint64_t>(std::max<int64_t>(low, 0)),
                             static_cast<uint64_t>(high)));
  }
  if (low < 0) {
    choice.add(sequence(
        {"\"-\"", whole_numbers(without_sign(std::min<int64_t>(high, -1)), without_sign(low))}));
  }
  return choice.text();
}

std::string numbers(const std::optional<NumberBound>& low, const std::optional<NumberBound>& high) {
  Choice choice;
  const NumberBound zero{};
  const bool has_positive = !high || !high->value.is_negative;
  if (has_positive) {
    const NumberBound from = low && !low->value.is_negative ? *low : zero;
    if (const std::string text = magnitudes(from, high); !text.empty()) choice.add(text);
  }
  if (!low || low->value.is_negative) {
    NumberBound from{.is_open = true};  // above zero
    if (high && high->value.is_negative) from = magnitude(*high);
    std::optional<NumberBound> to;
    if (low) to = magnitude(*low);
    const std::string text = magnitudes(from, to);
    if (!text.empty()) choice.add(sequence({"\"-\"", text}));
  }
  return choice.empty() ? "" : choice.text();
}

}  // namespace heddle::grammar
