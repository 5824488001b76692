#include "heddle/ops/norm.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, Norm) {
  heddle_rms_norm_options options;
  heddle_rms_norm_options_init(&options);
  EXPECT_EQ(options.epsilon, RmsNormOptions().epsilon);
  EXPECT_EQ(options.weight_offset, RmsNormOptions().weight_offset);

  auto x = random_array<half>({3, 17}), w = random_array<half>({17}), got = x, want = x;
  expect_ok(heddle_rms_norm(context, got.c(), x.c(), w.c(), nullptr));
  rms_norm(ctx, want.view(), x.view(), w.view());
  EXPECT_EQ(got, want);

  options.epsilon = 0.5f;
  options.weight_offset = 1;
  auto residual = random_array<half>({3, 17}), same = residual;
  expect_ok(heddle_fused_add_rms_norm(context, got.c(), residual.c(), x.c(), w.c(), &options));
  fused_add_rms_norm(ctx, want.view(), same.view(), x.view(), w.view(),
                     {.epsilon = 0.5f, .weight_offset = 1});
  EXPECT_EQ(got, want);
  EXPECT_EQ(residual, same);

  Array<float8_e4m3> got8({3, 17}), want8({3, 17});
  Array<float> scales({3}), want_scales({3});
  heddle_rms_norm_options_init(&options);
  EXPECT_TRUE(options.output_scale == nullptr && options.row_scales == nullptr);
  options.row_scales = scales.c();
  expect_ok(heddle_rms_norm(context, got8.c(), x.c(), w.c(), &options));
  RmsNormOptions per_row;
  per_row.output_scale.per_row = want_scales.view();
  rms_norm(ctx, want8.view(), x.view(), w.view(), per_row);
  EXPECT_EQ(got8, want8);
  EXPECT_EQ(scales, want_scales);
  options.row_scales = nullptr;
  options.output_scale = scales.c();
  EXPECT_EQ(heddle_rms_norm(context, got8.c(), x.c(), w.c(), &options), HEDDLE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace heddle::testing
