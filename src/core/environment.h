#pragma once

#include <cstdlib>
#include <string_view>

namespace heddle {

/// Whether the environment holds NAME=1.
[[nodiscard]] inline bool is_one_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace heddle
