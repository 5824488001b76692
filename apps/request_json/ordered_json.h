#pragma once

#include <string>

#include "files/json_tree.h"

namespace heddle::app {

/// A line of JSON, its fields in their order, in time in proportion to the line. What is not JSON,
/// nests deeper than 64 or gives a field twice is a heddle::Error of one line that begins with
/// `where`.
[[nodiscard]] files::JsonTree parse_ordered_json(const std::string& text, const std::string& where);

}  // namespace heddle::app
