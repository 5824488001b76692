#include "heddle/ops/embedding.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, Embedding) {
  auto rows = random_array<bfloat16>({5, 7});
  Array<int32_t> ids({3}, {4, 0, 9});
  Array<float> got({3, 7}), want({3, 7});
  expect_ok(heddle_embedding(context, got.c(), ids.c(), rows.c()));
  embedding(ctx, want.view(), ids.view(), rows.view());
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace heddle::testing
