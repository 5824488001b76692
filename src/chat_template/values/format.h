// Values as text: Python's str(), repr() and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "chat_template/values/value.h"

namespace heddle::chat_template {

/// What {{ value }} prints. Throws Error(kUnsupported) for values that Python shows by their
/// address.
std::string to_text(Budget& budget, const Value& value);
/// What a value looks like inside a printed list.
std::string to_repr(Budget& budget, const Value& value);
std::string repr_of(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace heddle::chat_template
