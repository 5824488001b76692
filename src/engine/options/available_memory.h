#pragma once

#include <cstdint>
#include <filesystem>

#include "heddle/core/device.h"

namespace heddle {

/// Bytes of memory that this process can still take without pushing others out: MemAvailable of the
/// machine, and no more than any control group (version 1 or 2) that the process is in leaves it,
/// where its files can be forgotten; of a system without /proc/meminfo, all of its memory. `root`
/// is where the system's files are looked for.
[[nodiscard]] int64_t available_memory(const std::filesystem::path& root = "/");

/// Of a device: of its own memory on a GPU.
[[nodiscard]] int64_t available_memory(Device device);

}  // namespace heddle
