#include <algorithm>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "core/staged_arrays.h"

namespace heddle::testing {
namespace {

class DeviceTensorCuda : public CudaTest {};

template <class T>
std::vector<T> values_of(const ExecContext& ctx, const ConstTensorView& view) {
  std::vector<T> values(static_cast<size_t>(view.num_elements()));
  copy_to_host(ctx, std::span(values), view);
  return values;
}

TEST_F(DeviceTensorCuda, IsZeroWhenMadeAndKeepsWhatIsCopied) {
  const ExecContext ctx = cuda_context();
  const DeviceTensor zeros(ctx.device, DType::kInt32, {1000, 3});
  EXPECT_EQ(values_of<int32_t>(ctx, zeros.view()), std::vector<int32_t>(3000));
  const std::vector<float> values{1, 2, 3, 4};
  const DeviceTensor tensor(ctx, std::span<const float>(values));
  EXPECT_EQ(tensor.view().device(), ctx.device);
  EXPECT_EQ(values_of<float>(ctx, tensor.view()), values);
  EXPECT_EQ(values_of<float>(ctx, tensor.rows(2)), (std::vector<float>{1, 2}));
}

TEST_F(DeviceTensorCuda, StagedArraysArriveTogether) {
  const ExecContext ctx = cuda_context();
  StagedArrays arrays(ctx.device, 4096);
  for (const int32_t step : {1, 2}) {
    const std::vector<int32_t> ids{step, 20, 30};
    const std::vector<int64_t> seeds{-step, int64_t{1} << 40};
    arrays.clear();
    const ConstTensorView on_device = arrays.add(ids), second = arrays.add(seeds);
    arrays.copy(ctx);
    EXPECT_EQ(values_of<int32_t>(ctx, on_device), ids);
    EXPECT_EQ(values_of<int64_t>(ctx, second), seeds);
  }
}

}  // namespace
}  // namespace heddle::testing
