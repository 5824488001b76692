#pragma once

#include "heddle/core/device.h"

namespace heddle::testing {

/// The CPU under another name. Ops run there as on the CPU, but refuse tensors of the CPU itself:
/// what runs on it takes every tensor from the context's device, and would on a GPU, too.
inline constexpr Device kSecondCpu{DeviceType::kCpu, 1};

}  // namespace heddle::testing
