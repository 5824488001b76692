#pragma once

#include <string>

#include "heddle/core/device.h"

namespace heddle {

/// What the driver calls a GPU, "NVIDIA H200"; empty for the CPU. Throws what query_device throws.
[[nodiscard]] std::string device_name(Device device);

}  // namespace heddle
