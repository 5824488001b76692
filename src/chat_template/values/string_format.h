// Values in columns: Python's format() and the operator % of strings.
#pragma once

#include <string>
#include <string_view>

#include "chat_template/values/value.h"

namespace heddle::chat_template {

/// How a value is written: [[fill]align][sign][#][0][width][grouping][.precision][type].
struct FormatSpec {
  char32_t fill = U' ';
  char align = '\0';  // <, >, = or ^; absent: numbers to the right, text to the left
  char sign = '-';
  bool is_alternate = false;
  bool has_zeros = false;  // between the sign and the digits
  int64_t width = 0;
  char grouping = '\0';    // between thousands
  int64_t precision = -1;  // absent
  char type = '\0';
};

/// Python's format(value, spec). Throws Error(kInvalidArgument) for a spec that the type does not
/// take, kUnsupported for forms that no template needs.
std::string format_value(Budget& budget, const Value& value, std::string_view spec);
/// value as format_value writes it where it is a number.
std::string format_number(Budget& budget, const Value& value, const FormatSpec& spec);
/// text between fill characters, up to the width.
std::string pad_text(Budget& budget, std::string_view text, const FormatSpec& spec);

/// Python's format % arguments: a tuple, a dict for %(name)s, or one value.
std::string percent_format(Budget& budget, std::string_view format, const Value& arguments);

/// repr() with everything beyond ASCII as escapes.
std::string to_ascii_repr(Budget& budget, const Value& value);

}  // namespace heddle::chat_template
