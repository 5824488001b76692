#include "core/device_bytes.h"

#include "heddle/config.h"

#include "core/cuda_device.h"

namespace heddle {

void FreeDeviceBytes::operator()(std::byte* memory) const noexcept {
  if (type == DeviceType::kCpu) {
    delete[] memory;
  } else if constexpr (kWithCuda) {
    cuda::free_memory(memory);
  }
}

DeviceBytes allocate_zeroed(Device device, size_t bytes) {
  if (device.type == DeviceType::kCpu) return {new std::byte[bytes]{}, {DeviceType::kCpu}};
  (void)query_device(device);  // refuses one that is not there
  if constexpr (kWithCuda) {
    return {cuda::allocate_zeroed(device.index, bytes), {DeviceType::kCuda}};
  }
  return {};
}

}  // namespace heddle
