#include "heddle/ops/linear.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/ops/embedding.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST_F(CApiOps, Linear) {
  int32_t block = 0;
  size_t stored_size = 0, packed_size = 0;
  expect_ok(heddle_block_size(&block, HEDDLE_Q6_K));
  EXPECT_EQ(block, block_size(WeightType::kQ6K));
  expect_ok(heddle_stored_bytes(&stored_size, HEDDLE_Q4_1, 20 * 64));
  EXPECT_EQ(stored_size, stored_bytes(WeightType::kQ4_1, 20 * 64));
  expect_ok(heddle_packed_bytes(&packed_size, HEDDLE_Q4_1, 20, 64));
  EXPECT_EQ(packed_size, packed_bytes(WeightType::kQ4_1, 20, 64));

  Array<uint8_t> stored({int64_t(stored_size)});
  for (uint8_t& byte : stored.values) byte = static_cast<uint8_t>(random_int(0, 50));
  Array<float> values({20 * 64}), values_want({20 * 64});
  expect_ok(heddle_dequantize(values.c(), HEDDLE_Q4_1, stored.c()));
  dequantize(values_want.values, WeightType::kQ4_1, std::as_bytes(std::span(stored.values)));
  EXPECT_EQ(values, values_want);

  std::vector<uint8_t> room(packed_size + 64);
  uint8_t* aligned = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64);
  const CTensor packed(aligned, {int64_t(packed_size)});
  expect_ok(heddle_pack_rows(context, packed.get(), HEDDLE_Q4_1, 20, 64, 0, 20, stored.c()));
  heddle_packed_weight weight{HEDDLE_Q4_1, 20, 64, packed.get()};
  const PackedWeight same{WeightType::kQ4_1, 20, 64, reinterpret_cast<std::byte*>(aligned)};
  auto x = random_array({5, 64});
  Array<float> y({5, 20}), want({5, 20}), y1({5, 20}), rows({2, 64}), rows_want({2, 64});
  linear(ctx, want.view(), x.view(), same);
  expect_ok(heddle_linear(context, y.c(), x.c(), &weight));
  EXPECT_EQ(y, want);
  const heddle_packed_weight weights[] = {weight, weight};
  y.values.assign(y.values.size(), 0.0f);
  DLTensor* const ys[] = {y.c(), y1.c()};
  expect_ok(heddle_linear_many(context, ys, 2, x.c(), weights));
  EXPECT_EQ(y, want);
  EXPECT_EQ(y1, want);
  Array<int64_t> ids({2}, {19, -1});
  expect_ok(heddle_packed_embedding(context, rows.c(), ids.c(), &weight));
  embedding(ctx, rows_want.view(), ids.view(), same);
  EXPECT_EQ(rows, rows_want);

  weight.type = 11;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "type is 11, which is no heddle_weight_type",
                 heddle_linear(context, y.c(), x.c(), &weight));
  weight = {HEDDLE_Q4_1, 36, 64, packed.get()};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.data.size(0) is ",
                 heddle_linear(context, y.c(), x.c(), &weight));
  const CTensor crooked(aligned + 1, {int64_t(packed_size)});
  weight = {HEDDLE_Q4_1, 20, 64, crooked.get()};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.data is not 64-byte aligned",
                 heddle_linear(context, y.c(), x.c(), &weight));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight is NULL",
                 heddle_linear(context, y.c(), x.c(), nullptr));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "bytes is NULL",
                 heddle_packed_bytes(nullptr, HEDDLE_Q4_1, 20, 64));
}

}  // namespace
}  // namespace heddle::testing
