#include "heddle/ops/sampling.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, Sampling) {
  EXPECT_EQ(heddle_sample_workspace_bytes(4, 50), sample_workspace_bytes(4, 50));
  auto logits = random_array({4, 50});
  Array<float> temperature({4}, {0.0f, 1.0f, 0.7f, 2.0f}), top_p({4}, {1.0f, 0.9f, 0.8f, 1.0f}),
      min_p({4}, {0.0f, 0.0f, 0.1f, 0.0f});
  Array<int32_t> top_k({4}, {0, 10, 0, 40}), ids({4}), ids_want({4});
  Array<int64_t> seed({4}, {1, 2, 3, 4}), step({4}, {0, 1, 2, 3});
  Array<float> logprobs({4}), logprobs_want({4});
  heddle_sampling_table table{temperature.c(), top_k.c(), top_p.c(), min_p.c(), seed.c(), step.c()};
  expect_ok(heddle_sample(context, ids.c(), logprobs.c(), logits.c(), &table));
  sample(ctx, ids_want.view(), logprobs_want.view(), logits.view(),
         {temperature.view(), top_k.view(), top_p.view(), min_p.view(), seed.view(), step.view()});
  EXPECT_EQ(ids, ids_want);
  EXPECT_EQ(logprobs, logprobs_want);
  expect_ok(heddle_greedy(context, ids.c(), nullptr, logits.c()));
  greedy(ctx, ids_want.view(), {}, logits.view());
  EXPECT_EQ(ids, ids_want);

  table.seed = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "seed is NULL",
                 heddle_sample(context, ids.c(), nullptr, logits.c(), &table));
  table.seed = seed.c();
  const Context poor(1, 0);
  expect_failure(HEDDLE_OUT_OF_MEMORY, "workspace holds 0 bytes",
                 heddle_sample(poor, ids.c(), nullptr, logits.c(), &table));
}

}  // namespace
}  // namespace heddle::testing
