// What the contract says about calls that do nothing and calls that are wrong.
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"

#include "expect_error.h"
#include "ops/lora/test/contract_test_body.h"
#include "poison.h"

namespace heddle {
namespace {

using testing::message_of;

class LoraContract : public ::testing::Test {
 protected:
  testing::Mirror mirror;
  testing::LoraRun run{{}, mirror};
  testing::LoraCall<float> c{run};
};

TEST_F(LoraContract, RowsWithoutAnAdapterAreNotTouched) {
  testing::expect_rows_without_an_adapter_are_not_touched<float>(run);
}

TEST_F(LoraContract, NullWeightsAndNoSlotsTouchNothing) {
  testing::expect_null_weights_and_no_slots_touch_nothing<float>(run);
}

TEST_F(LoraContract, SegmentsWithoutSlotsUseTheirOwnNumber) {
  testing::expect_segments_without_slots_use_their_own_number<float>(run);
}

TEST_F(LoraContract, EmptyBatchesAreLegal) { testing::expect_empty_batches_are_legal<float>(run); }

TEST_F(LoraContract, TakesAnyNumberOfRows) { testing::expect_takes_any_number_of_rows<float>(run); }

TEST_F(LoraContract, ErrorsNameTheBatch) {
  EXPECT_EQ(message_of([&] { c.shrink({}); }), "the batch has neither slot_ids nor segments");
  LoraBatch both = c.batch();
  both.seg_starts = both.slot_ids;
  EXPECT_EQ(message_of([&] { c.shrink(both); }),
            "the batch has both slot_ids and segments, expected one of them");
  EXPECT_EQ(message_of([&] { c.shrink(LoraBatch::from_ids(host_view(c.ids.data(), {4}))); }),
            "slot_ids.size(0) is 4, expected num_tokens = 5");
  EXPECT_EQ(message_of([&] { c.shrink(LoraBatch::from_ids(host_view(c.x.data(), {5}))); }),
            "slot_ids is f32, supported: i32, i64");
  LoraBatch segments = LoraBatch::from_segments(c.batch().slot_ids, c.batch().slot_ids,
                                                host_view(c.ids.data(), {2}));
  EXPECT_EQ(message_of([&] { c.shrink(segments); }),
            "seg_slots.size(0) is 2, expected num_segments = 5");
  LoraBatch scaled = c.batch();
  scaled.row_scale = host_view(c.x.data(), {6});
  EXPECT_EQ(message_of([&] { c.shrink(scaled); }),
            "row_scale.size(0) is 6, expected num_tokens = 5");
}

TEST_F(LoraContract, ErrorsNameTheTable) {
  c.a_entries[1].rank = 3;
  EXPECT_EQ(message_of([&] { c.shrink(c.batch()); }),
            "a.entries[slot 1, slice 0].rank is 3, expected 1 to max_rank = 2");
  EXPECT_EQ(message_of([&] { c.apply(c.batch()); }),
            "a.entries[slot 1, slice 0].rank is 3, expected 1 to max_rank = 2");
  c.a_table.max_rank = 3;
  EXPECT_EQ(message_of([&] { c.shrink(c.batch()); }),
            "a.entries[slot 1, slice 0].rank is 3, but y.size(1) is 2");
  c.b_table.max_rank = 3;
  c.b_entries[0].rank = 3;
  EXPECT_EQ(message_of([&] { c.expand(c.batch()); }),
            "b.entries[slot 0, slice 0].rank is 3, but h.size(1) is 2");
  c.a_entries[1].rank = 2;
  EXPECT_EQ(message_of([&] { c.apply(c.batch()); }),
            "the rank of a[slot 0, slice 0] is 2, but b has 3");
  c.a_table.max_rank = 513;
  EXPECT_EQ(message_of([&] { c.shrink(c.batch()); }),
            "a.max_rank is 513, at most 512 is supported");
  c.a_table = {.entries = c.a_entries, .num_slots = 2, .max_rank = 2, .dtype = DType::kInt32};
  EXPECT_EQ(message_of([&] { c.shrink(c.batch()); }), "a is i32, supported: f32, f16, bf16");
  c.a_table = {.num_slots = 2, .max_rank = 2};
  EXPECT_EQ(message_of([&] { c.shrink(c.batch()); }),
            "a has 0 of entries, pointers and stack, expected one of them for num_slots = 2");
}

TEST_F(LoraContract, ErrorsNameTheTensors) {
  const ConstTensorView x = host_view(c.x.data(), {5, 3});
  const TensorView h = c.h.view({5, 2});
  const std::vector<float> large(2 * 513 * 3);
  EXPECT_EQ(message_of([&] {
              lora_shrink({}, h, x, host_view(c.a.data(), {2, 2, 4}), c.batch());
            }),
            "a.size(2) is 4, expected in_features = 3");
  EXPECT_EQ(message_of([&] {
              lora_shrink({}, h, x, host_view(c.a.data(), {2, 1, 3}), c.batch());
            }),
            "y.size(1) is 2, expected rank = 1");
  testing::PoisonedBuffer<float> wide(5 * 513);
  EXPECT_EQ(
      message_of([&] {
        lora_shrink({}, wide.view({5, 513}), x, host_view(large.data(), {2, 513, 3}), c.batch());
      }),
      "a.size(1) is rank = 513, at most 512 is supported");
  EXPECT_EQ(message_of([&] { c.expand(c.batch(), 5, 1); }),
            "y.size(1) is 4, expected at least slice_offset + out_features = 1 + 4");
  EXPECT_EQ(message_of([&] { c.expand(c.batch(), 5, -1); }),
            "y.size(1) is 4, expected at least slice_offset + out_features = -1 + 4");
  EXPECT_EQ(message_of([&] { lora_shrink({}, h, x, c.a_table, 1, c.batch()); }),
            "slice is 1, but a.num_slices is 1");
  EXPECT_EQ(message_of([&] {
              lora_shrink({}, c.h.view({4, 2}), x, c.a_table, 0, c.batch());
            }),
            "y.size(0) is 4, expected num_tokens = 5");
  EXPECT_EQ(message_of([&] { lora_shrink({}, c.h.view({10}), x, c.a_table, 0, c.batch()); }),
            "y has rank 1, expected 2");
}

TEST_F(LoraContract, ErrorsOfASite) {
  const LoraSlice slices[2] = {{c.y.view({5, 2})}, {c.y.view({4, 2})}};
  const ConstTensorView x = host_view(c.x.data(), {5, 3});
  ExecContext ctx;
  const auto message = [&](std::span<const LoraSlice> of) {
    return message_of([&] { lora_apply(ctx, of, x, c.a_table, c.b_table, c.batch()); });
  };
  EXPECT_EQ(message(slices), "slices[1].y.size(0) is 4, expected num_tokens = 5");
  EXPECT_EQ(message({slices, 0}), "a.num_slices is 1, but there are 0 slices");
  c.b_table.num_slots = 1;
  EXPECT_EQ(message({slices, 1}), "a.num_slots is 2, but b.num_slots is 1");
  c.b_table.num_slots = 2;
  EXPECT_EQ(message({slices, 1}), "lora_apply: the context has no workspace");
  std::vector<std::byte> memory(8);
  Workspace small(memory);
  ctx.workspace = &small;
  EXPECT_THROW(lora_apply(ctx, {slices, 1}, x, c.a_table, c.b_table, c.batch()), Error);
}

}  // namespace
}  // namespace heddle
