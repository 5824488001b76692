#pragma once

#include <cstddef>

#include "heddle/core/device.h"

// What core asks the CUDA backend; src/cuda answers in builds that have it. So every call stands in `if constexpr (kWithCuda)`.

namespace heddle::cuda {

/// Devices that the driver shows; 0 without a driver.
[[nodiscard]] int num_devices();
/// Facts of device `index`, which is below num_devices().
[[nodiscard]] DeviceInfo device_info(int index);

/// The current device of this thread.
[[nodiscard]] int current_device();
void set_current_device(int index);
/// The same where nothing may be thrown; an error is dropped.
void restore_current_device(int index) noexcept;

/// Memory of device `index`, all zero when this returns, 256-byte aligned; nullptr for 0 bytes. Neither waits for other streams
/// nor disturbs a capture that is going on.
[[nodiscard]] std::byte* allocate_zeroed(int index, size_t bytes);
/// Waits for the work of the device. An error is dropped: at the end of a process the driver may be gone. nullptr is fine.
void free_memory(std::byte* memory) noexcept;

}  // namespace heddle::cuda
