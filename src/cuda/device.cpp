#include "cuda/check.h"

#include "core/cuda_device.h"

namespace heddle::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  // no driver, too old a driver or no device: nothing that a later call should report
  cudaGetLastError();
  return 0;
}

DeviceInfo device_info(int index) {
  return {.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                                attribute(cudaDevAttrComputeCapabilityMinor, index),
          .num_sms = attribute(cudaDevAttrMultiProcessorCount, index)};
}

std::string device_name(int index) {
  cudaDeviceProp properties;
  HEDDLE_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties.name;
}

}  // namespace heddle::cuda
