#include "core/device_stream.h"

#include "heddle/config.h"

#include "core/cuda_device.h"

namespace heddle {

void FreeDeviceStream::operator()(cudaStream_t stream) const noexcept {
  if constexpr (kWithCuda) cuda::free_stream(stream);
}

DeviceStream make_stream(Device device) {
  (void)query_device(device);  // refuses one that is not there
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) return DeviceStream(cuda::make_stream(device.index));
  }
  return nullptr;
}

}  // namespace heddle
