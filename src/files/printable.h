#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::files {

/// Text of a file made fit for one line of an error: control characters, what ends a line or turns
/// the direction of text, and bytes that are not UTF-8 become \xNN, and what goes past `longest`
/// bytes becomes "...".
[[nodiscard]] std::string printable(std::string_view text, size_t longest = 120);

/// The same between single quotes.
[[nodiscard]] inline std::string quote(std::string_view text) {
  return '\'' + printable(text) + '\'';
}

}  // namespace heddle::files
