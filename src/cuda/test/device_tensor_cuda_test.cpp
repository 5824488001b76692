#include <algorithm>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "core/staged_arrays.h"
#include "random.h"

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

/// To the device and back by kernels, of any number of words, without a byte more.
TEST_F(DeviceTensorCuda, WordsAreCopiedByKernels) {
  const ExecContext ctx = cuda_context();
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{4}, int64_t{1023}, int64_t{65541},
                              random_int(1, 300'000)}) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(int32_t);
    const StagingBytes there(ctx.device, bytes), back(ctx.device, bytes + sizeof(int32_t));
    const std::span words(reinterpret_cast<int32_t*>(there.get()), static_cast<size_t>(count));
    for (int32_t& word : words) word = static_cast<int32_t>(random_int(INT32_MIN, INT32_MAX));
    const DeviceBytes memory = allocate_zeroed(ctx.device, bytes);
    begin_word_copy_from_host(ctx, memory.get(), {there.get(), bytes});
    begin_word_copy_to_host(ctx, {back.get(), bytes}, memory.get());
    DeviceEvent done(ctx.device);
    done.record(ctx);
    done.wait();
    const auto* const got = reinterpret_cast<const int32_t*>(back.get());
    EXPECT_TRUE(std::equal(words.begin(), words.end(), got)) << count;
    EXPECT_EQ(got[count], 0);
  }
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
