#include "heddle/ops/sampling.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "compare.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, Sampling) {
  const DeviceBuffer<float> logits(random_normal<float>(3 * 50, 3.0f)),
      temperature(std::vector<float>{0.0f, 1.0f, 0.7f}),
      top_p(std::vector<float>{1.0f, 0.9f, 0.8f}), min_p(std::vector<float>{0.0f, 0.0f, 0.1f}),
      logprobs(3), logprobs_want(3), top_logprobs(6);
  const DeviceBuffer<int32_t> top_k(std::vector<int32_t>{0, 10, 0}), ids(3), ids_want(3), top(6);
  const DeviceBuffer<int64_t> seed(std::vector<int64_t>{1, 2, 3}),
      step(std::vector<int64_t>{0, 1, 2});
  const OnDevice c_logits(logits, {3, 50}), c_temperature(temperature, {3}), c_top_p(top_p, {3}),
      c_min_p(min_p, {3}), c_logprobs(logprobs, {3}), c_top_k(top_k, {3}), c_ids(ids, {3}),
      c_seed(seed, {3}), c_step(step, {3}), c_top(top, {3, 2}),
      c_top_logprobs(top_logprobs, {3, 2});
  const heddle_sampling_table table{c_temperature.get(), c_top_k.get(), c_top_p.get(),
                                    c_min_p.get(),       c_seed.get(),  c_step.get()};
  expect_ok(heddle_sample(context_, c_ids.get(), c_logprobs.get(), c_logits.get(), &table));
  sample(cuda_context(), ids_want.view({3}), logprobs_want.view({3}), logits.view({3, 50}),
         {temperature.view({3}), top_k.view({3}), top_p.view({3}), min_p.view({3}), seed.view({3}),
          step.view({3})});
  EXPECT_EQ(ids.download(), ids_want.download());
  EXPECT_TRUE(same_bits<float>(logprobs.download(), logprobs_want.download()));

  expect_ok(heddle_greedy(context_, c_ids.get(), c_logprobs.get(), c_logits.get()));
  greedy(cuda_context(), ids_want.view({3}), {}, logits.view({3, 50}));
  EXPECT_EQ(ids.download(), ids_want.download());
  expect_ok(heddle_token_logprobs(context_, c_logprobs.get(), c_top.get(), c_top_logprobs.get(),
                                  c_logits.get(), c_ids.get()));
  const auto best = top.download();
  EXPECT_EQ((std::vector<int32_t>{best[0], best[2], best[4]}), ids_want.download());
  EXPECT_EQ(logprobs.download()[1], top_logprobs.download()[2]);
  EXPECT_TRUE(ids.guards_intact() && top.guards_intact() && logprobs.guards_intact());
}

}  // namespace
}  // namespace heddle::testing
