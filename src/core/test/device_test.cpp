#include "heddle/core/device.h"

#include <gtest/gtest.h>

#include "heddle/config.h"

#include "core/device_name.h"
#include "expect_error.h"

namespace heddle {
namespace {

TEST(Device, TheCpuHasTheDefaultFacts) {
  const DeviceInfo info = query_device(Device{});
  EXPECT_EQ(info.compute_capability, 0);
  EXPECT_EQ(info.num_sms, 1);
}

TEST(Device, TheNameIsThatOfTheGpu) {
  EXPECT_EQ(device_name(Device{}), "");
  if (has_cuda()) {
    EXPECT_NE(device_name({DeviceType::kCuda, 0}), "");
  }
}

TEST(Device, CudaDevicesAreThereWhereTheBuildHasCuda) { EXPECT_TRUE(kWithCuda || !has_cuda()); }

TEST(Device, AnUnknownCudaDeviceIsRefused) {
  const Device unknown{DeviceType::kCuda, 1 << 20};
  if (kWithCuda) {
    testing::expect_invalid({"device is cuda:1048576, CUDA devices: "},
                            [&] { (void)query_device(unknown); });
  } else {
    testing::expect_unsupported({"device is cuda:1048576, this build is for the CPU alone"},
                                [&] { (void)query_device(unknown); });
  }
}

}  // namespace
}  // namespace heddle
