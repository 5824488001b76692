#pragma once

#include <string>
#include <string_view>

#include "files/json.h"

namespace heddle::files {

/// JSON text in one line, without spaces. Bytes that are no UTF-8 become U+FFFD, and numbers that
/// JSON has none for null. A double has the fewest digits that read back to it, with ".0" where it
/// would look like an integer: 2.0, 0.1, 1e+300.
void append_json(std::string& text, const Json& value);
void append_json(std::string& text, const JsonObject& object);
void append_json(std::string& text, double number);
/// The same as a JSON string, with its quotes.
void append_json_string(std::string& text, std::string_view string);

[[nodiscard]] std::string json_text(const Json& value);
[[nodiscard]] std::string json_text(const JsonObject& object);
[[nodiscard]] std::string json_text(double number);
[[nodiscard]] std::string json_string(std::string_view string);

/// A line for each member, for people to read.
[[nodiscard]] std::string json_lines(const JsonObject& object);

}  // namespace heddle::files
