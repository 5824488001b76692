#include "heddle/ops/adapter_parts.h"

#include <vector>

#include <gtest/gtest.h>

#include "exec_context.h"
#include "expect_error.h"
#include "ops/adapter_parts/test/adapter_parts_test_body.h"

namespace heddle {
namespace {

class AdapterParts : public ::testing::Test {
 protected:
  template <class Check>
  static void repeat(const Check& check) {
    for (int round = 0; round < 60 && !HasFailure(); ++round) {
      ThreadPool pool(1 + round % 3);
      testing::Mirror here;
      check(testing::context_with(&pool), here);
    }
  }
};

TEST_F(AdapterParts, AffinesEqualTheDefinitionAndTouchNothingElse) {
  repeat([](const auto& ctx, auto& here) { (void)testing::check_affines(ctx, here, false); });
  repeat([](const auto& ctx, auto& here) { (void)testing::check_affines(ctx, here, true); });
}

TEST_F(AdapterParts, OwnRowsStandInPlaceOfOthers) {
  repeat([](const auto& ctx, auto& here) { testing::check_replace_rows(ctx, here); });
}

TEST_F(AdapterParts, LowRankRowsEqualTheDefinitionAndTouchNothingElse) {
  repeat([](const auto& ctx, auto& here) { (void)testing::check_low_rank_rows(ctx, here); });
}

TEST_F(AdapterParts, QuotientsByLengthsAreRoundedOnce) {
  repeat([](const auto& ctx, auto& here) { testing::check_divide_by_lengths(ctx, here); });
}

TEST_F(AdapterParts, OwnProductsEqualTheDefinitionAndTouchNothingElse) {
  repeat([](const auto& ctx, auto& here) { testing::check_linear_at<float>(ctx, here); });
  repeat([](const auto& ctx, auto& here) { testing::check_linear_at<half>(ctx, here); });
  repeat([](const auto& ctx, auto& here) { testing::check_linear_at<bfloat16>(ctx, here); });
}

TEST_F(AdapterParts, NameWhatIsWrong) {
  std::vector<float> y(12), values(8);
  std::vector<int32_t> slots(3);
  LoraWeight entry{.data = values.data(), .rank = 2, .row_stride = 4};
  LoraTable table{.entries = &entry, .num_slots = 1, .max_rank = 2};
  LoraBatch batch = LoraBatch::from_ids(host_view(slots.data(), {3}));
  const TensorView rows = host_view(y.data(), {3, 4});
  const auto affines = [&](const TensorView& view) {
    const LoraSlice slice{view};
    return testing::message_of([&] { apply_affines({}, {&slice, 1}, table, batch); });
  };
  EXPECT_EQ(affines(rows), "no error");
  std::vector<half> halves(12);
  EXPECT_EQ(affines(host_view(halves.data(), {3, 4})), "slices[0].y is f16, supported: f32");
  EXPECT_EQ(affines(host_view(y.data(), {4, 3})), "slot_ids.size(0) is 3, expected num_tokens = 4");
  const int64_t features = 5;
  table.features = &features;
  EXPECT_EQ(affines(rows), "slices[0].y.size(1) is 4, expected affines.features[0] = 5");
  table.features = nullptr;
  table.max_rank = 3;
  EXPECT_EQ(affines(rows), "affines has max_rank 3, expected at most 2, kRankMajor");
  table.max_rank = 2;
  table.dtype = DType::kFloat16;
  EXPECT_EQ(affines(rows), "affines is f16, expected f32");
  table.dtype = DType::kFloat32;
  table.num_slices = 2;
  EXPECT_EQ(affines(rows), "affines.num_slices is 2, but there are 1 slices");
  table.num_slices = 1;
  batch.row_scale = host_view(values.data(), {3});
  EXPECT_EQ(affines(rows), "the batch has row_scale, which apply_affines does not take");
  batch = {};
  EXPECT_EQ(affines(rows), "the batch has neither slot_ids nor pairs");

  const ConstTensorView ids = host_view(slots.data(), {3}), own = host_view(values.data(), {2, 4});
  EXPECT_EQ(testing::message_of([&] { replace_rows({}, rows, ids, ids, own); }),
            "own_rows.size(0) is 2, expected num_own = 3");
  EXPECT_EQ(testing::message_of([&] { linear_at({}, rows, own, ids, own); }),
            "x.size(0) is 2, expected num_tokens = 3");
  EXPECT_EQ(testing::message_of([&] { add_low_rank_rows({}, rows, ids, own, own, {}, 1.0f); }),
            "b.size(0) is 2, expected rank = 4");
}

}  // namespace
}  // namespace heddle
