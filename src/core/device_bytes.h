#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "heddle/core/device.h"

namespace heddle {

/// Frees what was allocated on a device, or by new[] on the CPU.
struct FreeDeviceBytes {
  DeviceType type = DeviceType::kCpu;
  void operator()(std::byte* memory) const noexcept;
};

/// Memory of one device with its owner; zero when made.
using DeviceBytes = std::unique_ptr<std::byte[], FreeDeviceBytes>;

/// `bytes` of zeroed memory, aligned for every type. Throws what query_device throws, and kOutOfMemory.
[[nodiscard]] DeviceBytes allocate_zeroed(Device device, size_t bytes);

}  // namespace heddle
