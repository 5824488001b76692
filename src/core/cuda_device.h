#pragma once

#include "heddle/core/device.h"

// What core asks the CUDA backend; src/cuda answers in builds that have it.

namespace heddle::cuda {

/// Devices that the driver shows; 0 without a driver.
[[nodiscard]] int num_devices();
/// Facts of device `index`, which is below num_devices().
[[nodiscard]] DeviceInfo device_info(int index);

}  // namespace heddle::cuda
