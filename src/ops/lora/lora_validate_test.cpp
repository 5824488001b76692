// HEDDLE_VALIDATE=1: wrong slots and segments are errors with row and value; without it they are rows without an adapter.
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"

#include "expect_error.h"
#include "poison.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::ScopedValidation;

/// Two slots of rank 1 over one feature; slot 1 has no address in the pointer table.
struct Site {
  std::vector<float> x = std::vector<float>(4, 1.0f), weights{1.0f, 2.0f};
  std::vector<int64_t> addresses{reinterpret_cast<int64_t>(weights.data()), 0};
  testing::PoisonedBuffer<float> y{4};
  ConstTensorView stack = host_view(weights.data(), {2, 1, 1});
  LoraTable pointers = LoraTable::from_pointers(host_view(addresses.data(), {2}), DType::kFloat32,
                                                LoraLayout::kRankMajor, 1, 1);
  LoraTable table = LoraTable::from_stack(stack, LoraLayout::kRankMajor);
  std::vector<std::byte> memory =
      std::vector<std::byte>(lora_apply_workspace_bytes({}, 4, 1, 1, 1));
  Workspace workspace{memory};
  ExecContext ctx;

  Site() { ctx.workspace = &workspace; }

  [[nodiscard]] ConstTensorView in() const { return host_view(x.data(), {4, 1}); }
  /// Every op that takes a batch.
  void run_all(const LoraBatch& batch, const LoraTable& a, const std::vector<const char*>& parts) {
    const TensorView out = y.view({4, 1});
    const LoraSlice slice{out};
    const auto expect = [&](const auto& call) {
      if (parts.empty()) return call();
      for (const char* part : parts) expect_invalid({part}, call);
    };
    if (a.stack != nullptr) expect([&] { lora_shrink(ctx, out, in(), stack, batch); });
    if (a.stack != nullptr) expect([&] { lora_expand(ctx, out, in(), stack, batch); });
    expect([&] { lora_shrink(ctx, out, in(), a, 0, batch); });
    expect([&] { lora_expand(ctx, out, in(), a, 0, 1, batch); });
    expect([&] { lora_apply(ctx, {&slice, 1}, in(), a, table, batch); });
    expect([&] { lora_apply(ctx, {&slice, 1}, in(), table, a, batch); });
  }
};

TEST(LoraValidate, SlotsAreBelowTheirNumber) {
  Site site;
  const std::vector<int32_t> ids{0, -5, 1, 2};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {4}));
  site.run_all(batch, site.table, {});
  EXPECT_TRUE(site.y.untouched(3));
  const ScopedValidation on;
  site.run_all(batch, site.table, {"slot_ids[3] is 2, expected below num_slots = 2"});
  const std::vector<int32_t> fine{0, -5, 1, -1};
  site.run_all(LoraBatch::from_ids(host_view(fine.data(), {4})), site.table, {});
}

TEST(LoraValidate, AUsedSlotHasAnAddress) {
  Site site;
  const std::vector<int64_t> ids{0, -1, 1, 0}, unused{0, -1, 0, 0};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {4}));
  site.run_all(batch, site.pointers, {});
  EXPECT_TRUE(site.y.untouched(2));
  const ScopedValidation on;
  site.run_all(batch, site.pointers, {"slot_ids[2] is 1, but ", ".pointers[1] is null"});
  site.run_all(LoraBatch::from_ids(host_view(unused.data(), {4})), site.pointers, {});
}

TEST(LoraValidate, EntriesMayLackASlice) {
  Site site;
  const ScopedValidation on;
  const LoraWeight none[2] = {};
  const std::vector<int64_t> ids{0, 1, 1, 0};
  const LoraTable empty{.entries = none, .num_slots = 2, .max_rank = 1};
  lora_shrink({}, site.y.view({4, 1}), site.in(), empty, 0,
              LoraBatch::from_ids(host_view(ids.data(), {4})));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(site.y.untouched(i));
}

TEST(LoraValidate, SegmentsStayWithinTheRowsAndApart) {
  Site site;
  struct Case {
    std::vector<int64_t> starts, ends, slots;
    std::vector<const char*> parts;
  };
  const std::vector<Case> cases{
      {{2, 0, -1}, {4, 2, -1}, {0, 1, 77}, {}},
      {{0}, {5}, {0}, {"seg_ends[0] is 5, expected at most num_tokens = 4"}},
      {{0, -1}, {1, 2}, {0, 0}, {"seg_starts[1] is -1, expected at least 0"}},
      {{4}, {6}, {0}, {"seg_starts[0] is 4, expected below num_tokens = 4"}},
      {{2, 0}, {4, 3}, {0, 1}, {"seg_starts[0] is 2, expected at least seg_ends[1] = 3"}},
      {{0, 0}, {1, 1}, {0, 1}, {"seg_starts[1] is 0, expected at least seg_ends[0] = 1"}},
      {{0, 2}, {1, 3}, {0, 2}, {"seg_slots[1] is 2, expected below num_slots = 2"}},
  };
  for (const Case& c : cases) {
    const auto n = static_cast<int64_t>(c.starts.size());
    const LoraBatch batch =
        LoraBatch::from_segments(host_view(c.starts.data(), {n}), host_view(c.ends.data(), {n}),
                                 host_view(c.slots.data(), {n}));
    const ScopedValidation on;
    site.run_all(batch, site.table, c.parts);
  }
  const std::vector<int64_t> start{1}, end{3}, slot{1};
  const LoraBatch null_slot = LoraBatch::from_segments(
      host_view(start.data(), {1}), host_view(end.data(), {1}), host_view(slot.data(), {1}));
  const ScopedValidation on;
  site.run_all(null_slot, site.pointers, {"seg_slots[0] is 1, but "});
}

}  // namespace
}  // namespace heddle
