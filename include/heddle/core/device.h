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

}  // namespace heddle
