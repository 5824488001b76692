// String and number literals of a template, as Python writes them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::chat_template {

/// The value of a literal, given what stands between its quotes. Throws Error(kInvalidArgument) for
/// a broken escape and kUnsupported for \N{...} and for surrogates, which UTF-8 cannot hold.
std::string unescape_string(std::string_view body);

struct NumberLiteral {
  size_t end;
  bool is_float;
};
/// The number that starts at byte `pos` of `source`, where there is a digit.
NumberLiteral scan_number(std::string_view source, size_t pos);

}  // namespace heddle::chat_template
