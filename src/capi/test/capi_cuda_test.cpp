// What holds of every C function on a GPU.
#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/ops/linear.h"

#include "capi/test/capi_cuda_test_body.h"
#include "device_buffer.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, AnOperationWithoutKernelIsRefused) {
  const DeviceBuffer<float> rows(8), sums(4);
  const DeviceBuffer<uint8_t> bytes(packed_bytes(WeightType::kF32, 2, 4));
  const OnDevice x(rows, {2, 4}), y(sums, {2, 2}), data(bytes, {int64_t(bytes.size())});
  const heddle_packed_weight weight{HEDDLE_F32, 2, 4, data.get()};
  expect_failure(HEDDLE_UNSUPPORTED, "linear: no implementation for cuda:",
                 heddle_linear(context_, y.get(), x.get(), &weight));
  EXPECT_TRUE(sums.untouched(0, 4));
}

TEST_F(CApiCuda, TensorsOfTheCpuAreNamed) {
  Array<float> x({2, 4}), a({1, 4, 4}), y({2, 4});
  Array<int32_t> ids({2});
  heddle_lora_batch batch{};
  batch.slot_ids = ids.c();
  expect_failure(HEDDLE_INVALID_ARGUMENT, "y is on cpu, the context runs on cuda:",
                 heddle_lora_shrink(context_, y.c(), x.c(), a.c(), &batch, 1.0f, false,
                                    HEDDLE_LORA_RANK_MAJOR));
}

}  // namespace
}  // namespace heddle::testing
