// What the contract says about calls that do nothing and calls that are wrong.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"

#include "expect_error.h"
#include "poison.h"

namespace heddle {
namespace {

using testing::message_of;

/// Two slots of rank 2, in_features 3, out_features 4, all ones; every test changes one thing.
struct Call {
  std::vector<float> x = std::vector<float>(15, 1.0f), a = std::vector<float>(12, 1.0f),
                     b = std::vector<float>(16, 1.0f);
  std::vector<int32_t> ids{0, 1, -1, 2, -7};  // the last three: no adapter
  testing::PoisonedBuffer<float> h{10}, y{20};
  LoraWeight a_entries[2] = {{.data = a.data(), .rank = 2, .row_stride = 3},
                             {.data = a.data() + 6, .rank = 2, .row_stride = 3}};
  LoraWeight b_entries[2] = {{.data = b.data(), .rank = 2, .scale = 3.0f, .row_stride = 2},
                             {.data = b.data() + 8, .rank = 2, .row_stride = 2}};
  LoraTable a_table{.entries = a_entries, .num_slots = 2, .max_rank = 2};
  LoraTable b_table{
      .entries = b_entries, .num_slots = 2, .max_rank = 2, .layout = LoraLayout::kRankMinor};
  std::vector<std::byte> memory = std::vector<std::byte>(lora_apply_workspace_bytes(5, 1, 2));
  Workspace workspace{memory};
  ExecContext ctx;

  Call() { ctx.workspace = &workspace; }

  LoraBatch batch() { return LoraBatch::from_ids(host_view(ids.data(), {int64_t(ids.size())})); }
  void shrink(const LoraBatch& rows) {
    lora_shrink(ctx, h.view({5, 2}), host_view(x.data(), {5, 3}), a_table, 0, rows);
  }
  void expand(const LoraBatch& rows, int64_t offset = 0) {
    lora_expand(ctx, y.view({5, 4}), h.view({5, 2}), b_table, 0, 4, rows, offset, 1.0f, false);
  }
  void apply(const LoraBatch& rows) {
    const LoraSlice slice{y.view({5, 4})};
    lora_apply(ctx, {&slice, 1}, host_view(x.data(), {5, 3}), a_table, b_table, rows);
  }
};

TEST(LoraContract, RowsWithoutAnAdapterAreNotTouched) {
  Call c;
  c.shrink(c.batch());
  c.expand(c.batch());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(c.h[i], 3.0f);
  for (size_t i = 4; i < 10; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(c.y[i], 18.0f);  // 2 ranks * 3, and the entry's scale of 3
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(c.y[i], 6.0f);
  for (size_t i = 8; i < 20; ++i) EXPECT_TRUE(c.y.untouched(i));
}

TEST(LoraContract, NullWeightsAndNoSlotsTouchNothing) {
  Call c;
  c.a_entries[0].data = c.a_entries[1].data = nullptr;
  c.a_entries[0].rank = 9999;  // of no interest without data
  c.shrink(c.batch());
  c.apply(c.batch());
  c.a_table.num_slots = c.b_table.num_slots = 0;
  c.a_table.entries = nullptr;
  c.shrink(c.batch());
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(c.y.untouched(i));
}

TEST(LoraContract, SegmentsWithoutSlotsUseTheirOwnNumber) {
  Call c;
  const std::vector<int64_t> starts{3, 0, 1}, ends{5, 1, 2};  // the third slot is not there
  c.b_entries[1].data = c.a_entries[1].data = nullptr;
  c.shrink(LoraBatch::from_segments(host_view(starts.data(), {3}), host_view(ends.data(), {3})));
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 6; i < 10; ++i) EXPECT_EQ(c.h[i], 3.0f);
}

TEST(LoraContract, EmptyBatchesAreLegal) {
  Call c;
  const LoraBatch none = LoraBatch::from_ids(host_view(c.ids.data(), {0}));
  lora_shrink(c.ctx, c.h.view({0, 2}), host_view(c.x.data(), {0, 3}), c.a_table, 0, none);
  lora_expand(c.ctx, c.y.view({0, 4}), c.h.view({0, 2}), c.b_table, 0, 4, none);
  const LoraSlice slice{c.y.view({0, 4})};
  lora_apply(c.ctx, {&slice, 1}, host_view(c.x.data(), {0, 3}), c.a_table, c.b_table, none);
  const std::vector<int64_t> empty(1);
  const ConstTensorView no_segments = host_view(empty.data(), {0});
  c.shrink(LoraBatch::from_segments(no_segments, no_segments, no_segments));
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(c.h.untouched(i));
}

TEST(LoraContract, TakesAnyNumberOfRows) {
  const int64_t n = 70000;
  Call c;
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < n; ++t) ids.push_back(t % 3 - 1);
  std::vector<float> x(size_t(3 * n), 1.0f), y(size_t(4 * n), 1.0f);
  c.memory.resize(lora_apply_workspace_bytes(n, 1, 2));
  Workspace workspace{c.memory};
  c.ctx.workspace = &workspace;
  const LoraSlice slice{host_view(y.data(), {n, 4})};
  lora_apply(c.ctx, {&slice, 1}, host_view(x.data(), {n, 3}), c.a_table, c.b_table,
             LoraBatch::from_ids(host_view(ids.data(), {n})));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t slot = ids[i / 4];  // y + 2 ranks * 3, and the scale of 3 of slot 0
    ASSERT_EQ(y[i], slot == 0 ? 19.0f : slot == 1 ? 7.0f : 1.0f) << "row " << i / 4;
  }
}

TEST(LoraContract, ErrorsNameTheBatch) {
  Call c;
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

TEST(LoraContract, ErrorsNameTheTable) {
  Call c;
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

TEST(LoraContract, ErrorsNameTheTensors) {
  Call c;
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
  EXPECT_EQ(message_of([&] { c.expand(c.batch(), 1); }),
            "y.size(1) is 4, expected at least slice_offset + out_features = 1 + 4");
  EXPECT_EQ(message_of([&] { c.expand(c.batch(), -1); }),
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

TEST(LoraContract, ErrorsOfASite) {
  Call c;
  const LoraSlice slices[2] = {{c.y.view({5, 2})}, {c.y.view({4, 2})}};
  const ConstTensorView x = host_view(c.x.data(), {5, 3});
  EXPECT_EQ(message_of([&] { lora_apply(c.ctx, slices, x, c.a_table, c.b_table, c.batch()); }),
            "slices[1].y.size(0) is 4, expected num_tokens = 5");
  EXPECT_EQ(message_of([&] {
              lora_apply(c.ctx, {slices, 0}, x, c.a_table, c.b_table, c.batch());
            }),
            "a.num_slices is 1, but there are 0 slices");
  c.b_table.num_slots = 1;
  EXPECT_EQ(message_of([&] { c.apply(c.batch()); }), "a.num_slots is 2, but b.num_slots is 1");
  c.b_table.num_slots = 2;
  c.ctx.workspace = nullptr;
  EXPECT_EQ(message_of([&] { c.apply(c.batch()); }), "lora_apply: the context has no workspace");
  Workspace small(std::span(c.memory).first(8));
  c.ctx.workspace = &small;
  EXPECT_THROW(c.apply(c.batch()), Error);
}

}  // namespace
}  // namespace heddle
