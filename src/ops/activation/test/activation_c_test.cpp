#include "heddle/ops/activation.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, Activation) {
  auto gate = random_array({3, 17}), up = random_array({3, 17}), got = up, want = up;
  expect_ok(heddle_silu_and_mul(context, got.c(), gate.c(), up.c()));
  silu_and_mul(ctx, want.view(), gate.view(), up.view());
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace heddle::testing
