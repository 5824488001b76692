#pragma once

#include <cstdint>
#include <ostream>

namespace heddle {

enum class DeviceType : uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

inline std::ostream& operator<<(std::ostream& os, Device device) {
  if (device.type == DeviceType::kCpu) return os << "cpu";
  return os << "cuda:" << device.index;
}

/// Facts of a chip that pure `select_*_config` functions read; {90, 132} on an H200.
struct DeviceInfo {
  int compute_capability = 0;
  int num_sms = 1;
};

/// The oldest compute capability that kernels are compiled for: 8.0.
inline constexpr int kMinComputeCapability = 80;

/// Facts of a device; the defaults for the CPU. Throws kInvalidArgument for an index that no CUDA
/// device has and kUnsupported in a build without CUDA. It asks the driver, so make it once per
/// context, not per call.
[[nodiscard]] DeviceInfo query_device(Device device);

/// Whether this build has CUDA kernels and the machine a device that runs them. Without a driver
/// that is false, no error.
[[nodiscard]] bool has_cuda();

}  // namespace heddle
