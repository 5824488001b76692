#include "heddle/core/device.h"

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "core/cuda_device.h"
#include "core/device_name.h"

namespace heddle {

DeviceInfo query_device(Device device) {
  if (device.type == DeviceType::kCpu) return {};
  if constexpr (kWithCuda) {
    const int count = cuda::num_devices();
    HEDDLE_CHECK(device.index >= 0 && device.index < count, "device is ", device,
                 ", CUDA devices: ", count);
    return cuda::device_info(device.index);
  } else {
    throw_error(ErrorCode::kUnsupported, "device is ", device, ", this build is for the CPU alone");
  }
}

std::string device_name(Device device) {
  static_cast<void>(query_device(device));
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) return cuda::device_name(device.index);
  }
  return "";
}

bool has_cuda() {
  if constexpr (kWithCuda) {
    const int count = cuda::num_devices();
    for (int i = 0; i < count; ++i) {
      if (cuda::device_info(i).compute_capability >= kMinComputeCapability) return true;
    }
  }
  return false;
}

}  // namespace heddle
