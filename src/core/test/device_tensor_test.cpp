#include "core/device_tensor.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "second_cpu.h"

namespace heddle {
namespace {

TEST(DeviceTensor, IsZeroAndAlignedWhetherSmallOrLarge) {
  const ExecContext ctx;
  for (const int64_t rows : {1, 7, 16'384, 100'000}) {
    const DeviceTensor tensor({}, DType::kFloat32, {rows, 3});
    std::vector<float> values(static_cast<size_t>(rows * 3), 1.0f);
    copy_to_host(ctx, std::span(values), tensor.view());
    EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 0.0f; })) << rows << " rows";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().raw()) % 64, 0u);
    EXPECT_EQ(tensor.num_bytes(), values.size() * sizeof(float));
  }
}

TEST(DeviceTensor, TakesTheDeviceOfTheContextAndKeepsItsMemoryWhenMoved) {
  const ExecContext ctx{.device = testing::kSecondCpu};
  const std::vector<float> values{1, 2, 3, 4};
  DeviceTensor made(ctx, std::span<const float>(values));
  const std::byte* memory = made.view().raw();
  const DeviceTensor tensor = std::move(made);
  EXPECT_EQ(tensor.view().raw(), memory);
  EXPECT_EQ(tensor.view().device(), ctx.device);
  std::vector<float> first(2);
  copy_to_host(ctx, std::span(first), tensor.rows(2));
  EXPECT_EQ(first, (std::vector<float>{1, 2}));
}

TEST(DeviceTensor, AbsentAndEmptyAreNotTheSame) {
  EXPECT_FALSE(DeviceTensor().view());
  EXPECT_TRUE(DeviceTensor({}, DType::kFloat32, {0, 4}).view());
}

TEST(DeviceTensor, AddressSpaceIsNotMemory) {
  const DeviceTensor vast({}, DType::kUInt8, {int64_t{1} << 40});
  const ExecContext ctx;
  const std::vector<std::byte> one{std::byte{7}};
  copy_from_host(ctx, vast.view().raw() + (int64_t{1} << 39), one);
  EXPECT_EQ(vast.view().raw()[int64_t{1} << 39], std::byte{7});
}

TEST(DeviceTensor, SaysHowMuchWasNotThere) {
  testing::expect_error(ErrorCode::kOutOfMemory, {"cannot get 576460752303423488 bytes", "on cpu"},
                        [] { DeviceTensor({}, DType::kUInt8, {int64_t{1} << 59}); });
}

TEST(DeviceTensor, CopiesNeedRoomForAllElements) {
  const DeviceTensor tensor({}, DType::kFloat32, {3});
  std::vector<float> two(2);
  testing::expect_invalid({"the tensor has 3 elements, the host has room for 2"},
                          [&] { copy_to_host({}, std::span(two), tensor.view()); });
}

}  // namespace
}  // namespace heddle
