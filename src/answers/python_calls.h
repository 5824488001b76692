#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::answers {

/// A call as Python writes it, with its arguments as a JSON object.
struct PythonCall {
  std::string name, arguments;
};

/// The calls in a text, `[now(zone="UTC"), now()]` or without brackets and one after another, all
/// arguments by name and literals. None where there is anything else in it.
[[nodiscard]] std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view text);

/// The JSON text of a Python literal.
[[nodiscard]] std::optional<std::string> json_of_python(std::string_view text);

}  // namespace heddle::answers
