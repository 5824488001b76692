#pragma once

#include <cstdint>

namespace heddle::serve {

/// What this process takes of the machine, as the system counts it; what it does not say is 0.
struct ProcessUse {
  double cpu_seconds = 0;  // user and system
  double start_time = 0;   // seconds since 1970
  int64_t resident_bytes = 0, virtual_bytes = 0;
  int64_t num_open_files = 0, max_open_files = 0;  // descriptors
};

[[nodiscard]] ProcessUse process_use();

}  // namespace heddle::serve
