#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "files/json.h"

namespace heddle::grammar {

/// A number as JSON writes it: -12.5 has whole "12" and fraction "5".
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";
  std::string fraction{};  // without zeros at its end

  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// Exact. None where it has more than 15 digits before or after the point.
[[nodiscard]] std::optional<Decimal> decimal_of(const files::Json& number);

struct NumberBound {
  Decimal value{};
  bool is_open = false;  // the bound itself is not within
};

/// EBNF of the integers of a range, both ends within it.
[[nodiscard]] std::string integers(int64_t low, int64_t high);
/// EBNF of the numbers of a range that have up to some digits after the point, and no exponent.
/// Numbers of more than 15 digits in all are left out, so that no two of them are the same double.
/// Empty: there is none.
[[nodiscard]] std::string numbers(const std::optional<NumberBound>& low,
                                  const std::optional<NumberBound>& high);

}  // namespace heddle::grammar
