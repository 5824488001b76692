#include "heddle/ops/rope.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, Rope) {
  heddle_rope_params params;
  heddle_rope_params_init(&params);
  RopeParams same;
  EXPECT_EQ(params.theta, same.theta);
  EXPECT_EQ(params.scale, same.scale);
  EXPECT_EQ(params.rotary_dim, same.rotary_dim);
  EXPECT_FALSE(params.has_llama3);
  same.llama3.emplace();
  EXPECT_EQ(params.llama3_factor, same.llama3->factor);
  EXPECT_EQ(params.llama3_low_freq_factor, same.llama3->low_freq_factor);
  EXPECT_EQ(params.llama3_high_freq_factor, same.llama3->high_freq_factor);
  EXPECT_EQ(params.llama3_original_max_position, same.llama3->original_max_position);

  params.has_llama3 = true;
  params.theta = same.theta = 5e5;
  params.llama3_factor = same.llama3->factor = 32.0;
  for (const int d : {0, 3, 5})
    EXPECT_EQ(heddle_rope_frequency(&params, 16, d), rope_frequency(same, 16, d));
  EXPECT_EQ(heddle_rope_frequency(nullptr, 16, 5), rope_frequency({}, 16, 5));

  Array<int32_t> positions({3}, {0, 7, 100000});
  auto factors = random_array({8});
  Array<float> cos({3, 8}), sin({3, 8}), cos_want({3, 8}), sin_want({3, 8});
  expect_ok(heddle_rope_table(context, cos.c(), sin.c(), positions.c(), &params, factors.c()));
  rope_table(ctx, cos_want.view(), sin_want.view(), positions.view(), same, factors.view());
  EXPECT_EQ(cos, cos_want);
  EXPECT_EQ(sin, sin_want);

  auto x = random_array({3, 2, 16}), x_want = x;
  expect_ok(heddle_rope(context, x.c(), cos.c(), sin.c()));
  rope(ctx, x_want.view(), cos.view(), sin.view());
  EXPECT_EQ(x, x_want);
  expect_ok(heddle_rope_positions(context, x.c(), positions.c(), &params));
  rope(ctx, x_want.view(), positions.view(), same);
  EXPECT_EQ(x, x_want);
}

}  // namespace
}  // namespace heddle::testing
