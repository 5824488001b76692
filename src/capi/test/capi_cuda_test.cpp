// What holds of every C function on a GPU.
#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "device_buffer.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, AnOperationWithoutKernelIsRefused) {
  const DeviceBuffer<float> logits(8);
  const DeviceBuffer<int32_t> token_ids(2);
  const OnDevice in(logits, {2, 4}), out(token_ids, {2});
  expect_failure(HEDDLE_UNSUPPORTED, "greedy",
                 heddle_greedy(context_, out.get(), nullptr, in.get()));
  EXPECT_TRUE(token_ids.untouched(0, 2));
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
