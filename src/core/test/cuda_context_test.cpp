#include "heddle/core/cuda_context.h"

#include <gtest/gtest.h>

#include "heddle/config.h"

#include "expect_error.h"

namespace heddle {
namespace {

void make(Device device) { const CudaContext context(device, nullptr, 1 << 10); }

TEST(CudaContext, ADeviceThatIsNotThereIsNamed) {
  const Device unknown{DeviceType::kCuda, 1 << 20};
  if (kWithCuda) {
    testing::expect_invalid({"device is cuda:1048576, CUDA devices: "}, [&] { make(unknown); });
  } else {
    testing::expect_unsupported({"device is cuda:1048576, this build is for the CPU alone"},
                                [&] { make(unknown); });
  }
}

TEST(CudaContext, TheCpuIsNoCudaDevice) {
  testing::expect_unsupported({"device is cpu, expected a CUDA device"}, [] { make(Device{}); });
}

TEST(ScopedDevice, TheCpuNeedsNone) { EXPECT_NO_THROW(const ScopedDevice on_cpu(Device{})); }

}  // namespace
}  // namespace heddle
