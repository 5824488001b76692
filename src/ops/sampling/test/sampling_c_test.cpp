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

  Array<int32_t> top({4, 3}), top_want({4, 3});
  Array<float> top_logprobs({4, 3}), top_logprobs_want({4, 3});
  expect_ok(
      heddle_token_logprobs(context, logprobs.c(), top.c(), top_logprobs.c(), logits.c(), ids.c()));
  token_logprobs(ctx, logprobs_want.view(), top_want.view(), top_logprobs_want.view(),
                 logits.view(), ids.view());
  EXPECT_EQ(logprobs, logprobs_want);
  EXPECT_EQ(top, top_want);
  EXPECT_EQ(top_logprobs, top_logprobs_want);

  Array<int32_t> indptr({5}, {0, 1, 1, 2, 3}), tokens({3}, {7, 0, 49});
  Array<int32_t> in_prompt({3}, {1, 0, 2}), in_output({3}, {0, 3, 1});
  Array<float> bias({3}, {0.0f, 1.0f, -2.0f}), repetition({4}, {1.5f, 1.0f, 1.0f, 0.8f}),
      presence({4}, {0.5f, 0.0f, 0.5f, 0.25f}), frequency({4}, {0.0f, 1.0f, 0.5f, 0.25f});
  Array<float> saved({3}), saved_want({3});
  auto adjusted = logits;
  heddle_logit_adjustments a{indptr.c(), tokens.c(),     in_prompt.c(), in_output.c(),
                             bias.c(),   repetition.c(), presence.c(),  frequency.c()};
  const auto before = logits;
  expect_ok(heddle_adjust_logits(context, adjusted.c(), saved.c(), &a));
  adjust_logits(ctx, logits.view(), saved_want.view(),
                {indptr.view(), tokens.view(), in_prompt.view(), in_output.view(), bias.view(),
                 repetition.view(), presence.view(), frequency.view()});
  EXPECT_EQ(adjusted, logits);
  EXPECT_EQ(saved, saved_want);
  expect_ok(heddle_restore_logits(context, adjusted.c(), saved.c(), &a));
  EXPECT_EQ(adjusted, before);
  a.bias = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "bias is NULL",
                 heddle_adjust_logits(context, adjusted.c(), nullptr, &a));

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
