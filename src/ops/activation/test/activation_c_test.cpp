#include "heddle/ops/activation.h"

#include <utility>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, SiluAndMul) {
  auto gate = random_array({3, 17}), up = random_array({3, 17}), got = up, want = up;
  expect_ok(heddle_silu_and_mul(context, got.c(), gate.c(), up.c()));
  silu_and_mul(ctx, want.view(), gate.view(), up.view());
  EXPECT_EQ(got, want);
}

TEST_F(CApiOps, GeluAndMul) {
  auto gate = random_array({3, 17}), up = random_array({3, 17}), got = up, want = up;
  const std::pair<heddle_gelu_form, GeluForm> forms[] = {{HEDDLE_GELU_ERF, GeluForm::kErf},
                                                         {HEDDLE_GELU_TANH, GeluForm::kTanh}};
  for (const auto& [c_form, form] : forms) {
    expect_ok(heddle_gelu_and_mul(context, got.c(), gate.c(), up.c(), c_form));
    gelu_and_mul(ctx, want.view(), gate.view(), up.view(), form);
    EXPECT_EQ(got, want);
  }
  expect_failure(HEDDLE_INVALID_ARGUMENT, "form is 2, expected HEDDLE_GELU_ERF",
                 heddle_gelu_and_mul(context, got.c(), gate.c(), up.c(), 2));
}

}  // namespace
}  // namespace heddle::testing
