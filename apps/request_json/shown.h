#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::app {

/// Text of a file made fit for one line of a message: control characters become \u and four digits,
/// bytes that are not UTF-8 U+FFFD, and what goes past `longest` bytes "...".
[[nodiscard]] std::string shown(std::string_view text, size_t longest = 120);

/// At most 60 bytes of it between double quotes, as JSON writes it: with \n, \" and the like.
[[nodiscard]] std::string quote(std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace heddle::app
