// What holds of every C function on a GPU.
#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "device_buffer.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, AnOperationWithoutKernelIsRefused) {
  const DeviceBuffer<float> data(8);
  const OnDevice x(data, {2, 4});
  expect_failure(HEDDLE_UNSUPPORTED, "silu_and_mul",
                 heddle_silu_and_mul(context_, x.get(), x.get(), x.get()));
  EXPECT_TRUE(data.untouched(0, 8));
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
