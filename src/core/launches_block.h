#pragma once

#include <cstdlib>
#include <string_view>

namespace heddle {

/// Whether a launch waits for its kernel: CUDA_LAUNCH_BLOCKING=1 in the environment, which CUDA
/// itself follows. Read at the first call of the process.
[[nodiscard]] inline bool launches_block() {
  static const bool blocks = [] {
    const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return blocks;
}

}  // namespace heddle
