// Python's arithmetic.
#pragma once

#include <string_view>

#include "chat_template/values/value.h"

namespace heddle::chat_template {

/// a + b, a - b, a * b, a / b, a // b, a % b, a ** b; % of a string formats. Throws
/// Error(kInvalidArgument) for types that do not fit, division by zero and integers beyond 64 bits.
Value apply_binary(Budget& budget, std::string_view op, const Value& a, const Value& b);
/// -a and +a.
Value apply_sign(std::string_view op, const Value& a);
/// s[start:stop:step] of a string, list, tuple or range; null is an absent part.
Value apply_slice(Budget& budget, const Value& s, const Value* start, const Value* stop,
                  const Value* step);
/// Appends s with HTML's special characters as entities.
void append_escaped(BudgetedText& text, std::string_view s);

}  // namespace heddle::chat_template
