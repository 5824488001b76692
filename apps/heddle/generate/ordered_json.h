#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace heddle::app {

/// A line of JSON, its fields in their order, in time in proportion to the line. What is not JSON,
/// nests deeper than 64 or gives a field twice is a heddle::Error of one line that begins with
/// `where`.
[[nodiscard]] nlohmann::ordered_json parse_ordered_json(const std::string& text,
                                                        const std::string& where);

}  // namespace heddle::app
