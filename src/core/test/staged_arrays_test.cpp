#include "core/staged_arrays.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "second_cpu.h"

namespace heddle {
namespace {

template <class T>
std::vector<T> values_of(const ExecContext& ctx, const ConstTensorView& view) {
  std::vector<T> values(static_cast<size_t>(view.num_elements()));
  copy_to_host(ctx, std::span(values), view);
  return values;
}

TEST(StagedArrays, BringsArraysToTheDeviceSideBySide) {
  const ExecContext ctx{.device = testing::kSecondCpu};
  StagedArrays arrays(ctx.device, StagedArrays::bytes_for<int32_t>(3) +
                                      StagedArrays::bytes_for<int64_t>(2) +
                                      StagedArrays::bytes_for<float>(0));
  const std::byte* first = nullptr;
  for (const int32_t step : {1, 2}) {
    const std::vector<int32_t> ids{step, 20, 30};
    const std::vector<int64_t> seeds{-step, int64_t{1} << 40};
    arrays.clear();
    const ConstTensorView got_ids = arrays.add(ids), got_seeds = arrays.add(seeds),
                          none = arrays.add(std::vector<float>());
    arrays.copy(ctx);
    EXPECT_EQ(values_of<int32_t>(ctx, got_ids), ids);
    EXPECT_EQ(values_of<int64_t>(ctx, got_seeds), seeds);
    EXPECT_EQ(none.size(0), 0);
    EXPECT_EQ(got_ids.device(), ctx.device);
    for (const ConstTensorView& view : {got_ids, got_seeds}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.raw()) % 64, 0u);
    }
    if (first == nullptr) first = got_ids.raw();
    EXPECT_EQ(got_ids.raw(), first) << "a captured graph keeps reading where the first step was";
  }
}

TEST(StagedArrays, RefusesWhatDoesNotFit) {
  StagedArrays arrays({}, StagedArrays::bytes_for<int32_t>(16));
  (void)arrays.add(std::vector<int32_t>(16));
  testing::expect_error(ErrorCode::kOutOfMemory, {"room for 64 bytes, needed 128"},
                        [&] { (void)arrays.add(std::vector<int32_t>(1)); });
  arrays.clear();
  EXPECT_NO_THROW((void)arrays.add(std::vector<int32_t>(16)));
}

}  // namespace
}  // namespace heddle
