#include "cuda/check.h"
#include "cuda_test.h"
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "device_buffer.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class DeviceBufferTest : public CudaTest {};

TEST_F(DeviceBufferTest, GivesBackWhatWasUploaded) {
  std::vector<int32_t> values(static_cast<size_t>(random_int(1, 100'000)));
  for (int32_t& value : values) value = static_cast<int32_t>(random_int(INT32_MIN, INT32_MAX));
  const DeviceBuffer<int32_t> buffer(values);
  EXPECT_EQ(buffer.download(), values);
  EXPECT_EQ(buffer.download(values.size() - 1, 1), std::vector<int32_t>{values.back()});
  EXPECT_TRUE(buffer.guards_intact());
}

TEST_F(DeviceBufferTest, StartsPoisonedAndTellsWhatWasTouched) {
  const auto n = static_cast<size_t>(random_int(3, 50'000));
  const auto touched = static_cast<size_t>(random_int(1, static_cast<int64_t>(n) - 2));
  DeviceBuffer<uint8_t> buffer(n);
  EXPECT_TRUE(buffer.untouched(0, n));
  buffer.upload(std::vector<uint8_t>{0x7F}, touched);
  EXPECT_FALSE(buffer.untouched(0, n));
  EXPECT_TRUE(buffer.untouched(0, touched));
  EXPECT_FALSE(buffer.untouched(touched));
  EXPECT_TRUE(buffer.untouched(touched + 1, n - touched - 1));
  buffer.poison();
  EXPECT_TRUE(buffer.untouched(0, n));
}

TEST_F(DeviceBufferTest, GuardsSeeAByteOnEitherSide) {
  for (const int64_t offset : {-1, 12}) {
    const DeviceBuffer<float> buffer(3);
    HEDDLE_CUDA_CHECK(cudaMemset(reinterpret_cast<char*>(buffer.data()) + offset, 0, 1));
    EXPECT_FALSE(buffer.guards_intact()) << "offset " << offset;
  }
}

TEST_F(DeviceBufferTest, ChecksMoreThan2To32Bytes) {
  const auto n = static_cast<size_t>(small_or(int64_t{1} << 20, (int64_t{1} << 32) + 5));
  DeviceBuffer<uint8_t> buffer(n, DeviceBuffer<uint8_t>::Guards::kNone);
  EXPECT_TRUE(buffer.untouched(0, n));
  buffer.upload(std::vector<uint8_t>{0}, n - 1);
  EXPECT_FALSE(buffer.untouched(0, n));
  EXPECT_TRUE(buffer.untouched(0, n - 1));
}

TEST_F(DeviceBufferTest, TheContextKnowsTheDevice) {
  const ExecContext ctx = cuda_context();
  EXPECT_EQ(ctx.device, DeviceBuffer<float>(1).device());
  EXPECT_GE(ctx.info.compute_capability, kMinComputeCapability);
  EXPECT_GE(ctx.info.num_sms, 1);
}

}  // namespace
}  // namespace heddle::testing
