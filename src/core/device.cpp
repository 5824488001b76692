#include "heddle/core/device.h"

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "core/cuda_device.h"

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
