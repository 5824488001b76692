#pragma once

#include "core/environment.h"

namespace heddle {

/// Whether a launch waits for its kernel: CUDA_LAUNCH_BLOCKING=1 in the environment, which CUDA
/// itself follows. Read at the first call of the process.
[[nodiscard]] inline bool launches_block() {
  static const bool blocks = is_one_in_environment("CUDA_LAUNCH_BLOCKING");
  return blocks;
}

}  // namespace heddle
