#pragma once

#include <cstdlib>
#include <string_view>

namespace heddle {

/// Whether the environment holds NAME=1.
[[nodiscard]] inline bool is_one_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string_view(value) == "1";
}

/// Whether a launch waits for its kernel: CUDA_LAUNCH_BLOCKING=1 in the environment, which CUDA
/// itself follows. Read at the first call of the process.
[[nodiscard]] inline bool launches_block() {
  static const bool blocks = is_one_in_environment("CUDA_LAUNCH_BLOCKING");
  return blocks;
}

}  // namespace heddle
