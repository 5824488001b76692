// LoRA through the C interface: the bits of C++ in every addressing, adapter tables, and contexts
// side by side.
#include "heddle/ops/lora.h"

#include <array>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

constexpr int64_t kTokens = 9, kIn = 40, kOut = 33, kRank = 8, kSlots = 3;

/// A batch with stacked weights A [slots, rank, in] and B [slots, out, rank], and what C++ makes of
/// them.
struct Site {
  Array<float> x = random_array({kTokens, kIn}), a = random_array({kSlots, kRank, kIn}),
               b = random_array({kSlots, kOut, kRank}), scale = random_array({kTokens});
  Array<int64_t> ids{{kTokens}};
  Array<float> h{{kTokens, kRank}}, y{{kTokens, kOut}};

  Site() {
    for (int64_t& id : ids.values) id = random_int(-1, kSlots);
    const LoraBatch batch{.slot_ids = ids.view(), .row_scale = scale.view()};
    lora_shrink({}, h.view(), x.view(), a.view(), batch, 0.5f);
    lora_expand({}, y.view(), h.view(), b.view(), batch, 0, 2.0f);
  }
  heddle_lora_batch batch() {
    heddle_lora_batch result{};
    result.slot_ids = ids.c();
    result.row_scale = scale.c();
    return result;
  }
};

TEST(CApiLora, StackedWeights) {
  const Context context(2);
  Site site;
  const heddle_lora_batch batch = site.batch();
  Array<float> h({kTokens, kRank}), y({kTokens, kOut});
  expect_ok(heddle_lora_shrink(context, h.c(), site.x.c(), site.a.c(), &batch, 0.5f, false,
                               HEDDLE_LORA_RANK_MAJOR));
  EXPECT_EQ(h, site.h);
  expect_ok(heddle_lora_expand(context, y.c(), h.c(), site.b.c(), &batch, 0, 2.0f, true,
                               HEDDLE_LORA_RANK_MINOR));
  EXPECT_EQ(y, site.y);
}

TEST(CApiLora, SegmentsAreABatch) {
  const Context context(1);
  auto x = random_array({4, kIn}), a = random_array({kSlots, kRank, kIn});
  Array<int32_t> starts({2}, {2, 0}), ends({2}, {4, 1}), slots({2}, {1, 2});
  heddle_lora_batch batch{};
  batch.seg_starts = starts.c();
  batch.seg_ends = ends.c();
  batch.seg_slots = slots.c();
  Array<float> got({4, kRank}), want({4, kRank});
  expect_ok(heddle_lora_shrink(context, got.c(), x.c(), a.c(), &batch, 1.0f, false,
                               HEDDLE_LORA_RANK_MAJOR));
  lora_shrink({}, want.view(), x.view(), a.view(),
              LoraBatch::from_segments(starts.view(), ends.view(), slots.view()));
  EXPECT_EQ(got, want);
}

TEST(CApiLora, TablesInEveryAddressing) {
  const Context context(1);
  Site site;
  const heddle_lora_batch batch = site.batch();
  Array<int64_t> a_addresses({kSlots});
  for (int64_t s = 0; s < kSlots; ++s) {
    a_addresses.values[size_t(s)] =
        reinterpret_cast<int64_t>(site.a.values.data() + s * kRank * kIn);
  }
  heddle_lora_table by_address, stacked;
  heddle_lora_table_init(&by_address);
  by_address.pointers = a_addresses.c();
  by_address.rank = kRank;
  by_address.features = kIn;
  heddle_lora_table_init(&stacked);
  stacked.stack = site.a.c();
  for (const heddle_lora_table* table : {&by_address, &stacked}) {
    Array<float> h({kTokens, kRank});
    expect_ok(heddle_lora_shrink_table(context, h.c(), site.x.c(), table, 0, &batch, 0.5f, false));
    EXPECT_EQ(h, site.h);
  }
  by_address.stack = site.a.c();
  Array<float> h({kTokens, kRank});
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "a has 2 of adapters, stack and pointers, expected one of them",
      heddle_lora_shrink_table(context, h.c(), site.x.c(), &by_address, 0, &batch, 1.0f, false));
  stacked.layout = 2;
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "layout is 2",
      heddle_lora_shrink_table(context, h.c(), site.x.c(), &stacked, 0, &batch, 1.0f, false));
}

/// An adapter table while it lives.
struct Table {
  heddle_adapter_table* handle = nullptr;
  heddle_lora_table table;

  Table(heddle_context* context, int64_t features, heddle_lora_layout layout) {
    expect_ok(heddle_adapter_table_create(context, &handle, kSlots, &features, 1, kRank,
                                          {kDLFloat, 32, 1}, layout));
    heddle_lora_table_init(&table);
    table.adapters = handle;
  }
  ~Table() { heddle_adapter_table_destroy(handle); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  /// Slot s is part s of a stack.
  void fill(heddle_context* context, Array<float>& stack, float scale) {
    for (int32_t s = 0; s < kSlots; ++s) {
      const CTensor weight(stack.values.data() + s * stack.shape[1] * stack.shape[2],
                           {stack.shape[1], stack.shape[2]});
      expect_ok(heddle_adapter_table_set(context, handle, s, 0, weight.get(), scale));
    }
  }
};

/// h and y of the site by adapter tables, from y = 0.
void run_tables(heddle_context* context, Site& site, Array<float>& h, Array<float>& y) {
  Table a(context, kIn, HEDDLE_LORA_RANK_MAJOR), b(context, kOut, HEDDLE_LORA_RANK_MINOR);
  a.fill(context, site.a, 1.0f);
  b.fill(context, site.b, 1.0f);
  const heddle_lora_batch batch = site.batch();
  expect_ok(heddle_lora_shrink_table(context, h.c(), site.x.c(), &a.table, 0, &batch, 0.5f, false));
  expect_ok(
      heddle_lora_expand_table(context, y.c(), h.c(), &b.table, 0, kOut, &batch, 0, 2.0f, true));
}

TEST(CApiLora, AdapterTables) {
  const Context context(2);
  Site site;
  Array<float> h({kTokens, kRank}), y({kTokens, kOut});
  run_tables(context, site, h, y);
  EXPECT_EQ(h, site.h);
  EXPECT_EQ(y, site.y);

  Table a(context, kIn, HEDDLE_LORA_RANK_MAJOR);
  a.fill(context, site.a, 1.0f);
  for (int32_t s = 0; s < kSlots; ++s) expect_ok(heddle_adapter_table_clear(context, a.handle, s));
  const heddle_lora_batch batch = site.batch();
  expect_ok(heddle_lora_shrink_table(context, h.c(), site.x.c(), &a.table, 0, &batch, 9.0f, false));
  EXPECT_EQ(h, site.h) << "cleared slots touch nothing";
  expect_failure(HEDDLE_INVALID_ARGUMENT, "slot is 3, expected 0 to 2",
                 heddle_adapter_table_clear(context, a.handle, kSlots));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.size(1) is 33, expected features[slice] = 40",
                 heddle_adapter_table_set(context, a.handle, 0, 0,
                                          CTensor(site.b.values.data(), {8, 33}).get(), 1.0f));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "table is NULL",
                 heddle_adapter_table_clear(context, nullptr, 0));
  heddle_adapter_table_destroy(nullptr);
}

TEST(CApiLora, ApplyOfASite) {
  EXPECT_EQ(heddle_lora_apply_workspace_bytes({kDLCPU, 0}, kTokens, kIn, 1, kRank),
            lora_apply_workspace_bytes({}, kTokens, kIn, 1, kRank));
  EXPECT_EQ(heddle_lora_apply_workspace_bytes({kDLCUDA, 0}, kTokens, kIn, 1, kRank),
            lora_apply_workspace_bytes({DeviceType::kCuda, 0}, kTokens, kIn, 1, kRank));
  const Context context(2);
  Site site;
  Table a(context, kIn, HEDDLE_LORA_RANK_MAJOR), b(context, kOut, HEDDLE_LORA_RANK_MINOR);
  a.fill(context, site.a, 1.0f);
  b.fill(context, site.b, 3.0f);
  heddle_lora_batch batch = site.batch();
  Array<float> y({kTokens, kOut}), h({kTokens, kRank}), want({kTokens, kOut});
  DLTensor* const ys[] = {y.c()};
  expect_ok(heddle_lora_apply(context, ys, 1, site.x.c(), &a.table, &b.table, &batch));
  lora_shrink({}, h.view(), site.x.view(), site.a.view(), LoraBatch::from_ids(site.ids.view()));
  LoraBatch scaled = LoraBatch::from_ids(site.ids.view());
  scaled.row_scale = site.scale.view();
  lora_expand({}, want.view(), h.view(), site.b.view(), scaled, 0, 3.0f);
  EXPECT_EQ(y, want);
  DLTensor* const none[] = {nullptr};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "ys[0] is NULL",
                 heddle_lora_apply(context, none, 1, site.x.c(), &a.table, &b.table, &batch));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "batch is NULL",
                 heddle_lora_apply(context, ys, 1, site.x.c(), &a.table, &b.table, nullptr));
}

TEST(CApiLora, ApplyOfPairs) {
  EXPECT_EQ(heddle_lora_pairs_workspace_bytes({kDLCPU, 0}, kTokens, kIn, kOut, 1, kRank),
            lora_pairs_workspace_bytes({}, kTokens, kIn, kOut, 1, kRank));
  EXPECT_EQ(heddle_lora_pairs_workspace_bytes({kDLCUDA, 0}, kTokens, kIn, kOut, 1, kRank),
            lora_pairs_workspace_bytes({DeviceType::kCuda, 0}, kTokens, kIn, kOut, 1, kRank));
  const Context context(2);
  Site site;
  Table a(context, kIn, HEDDLE_LORA_RANK_MAJOR), b(context, kOut, HEDDLE_LORA_RANK_MINOR);
  a.fill(context, site.a, 1.0f);
  b.fill(context, site.b, 3.0f);
  // Every token has its id with its scale, and then slot 1 twice.
  Array<int32_t> starts({kTokens + 1});
  Array<int64_t> slots({3 * kTokens}), ones({kTokens});
  Array<float> scales({3 * kTokens}), rest({kTokens});
  for (int64_t t = 0; t < kTokens; ++t) {
    starts.values[size_t(t) + 1] = int32_t(3 * t) + 3;
    slots.values[size_t(3 * t)] = site.ids.values[size_t(t)];
    slots.values[size_t(3 * t) + 1] = slots.values[size_t(3 * t) + 2] = 1;
    scales.values[size_t(3 * t)] = site.scale.values[size_t(t)];
    scales.values[size_t(3 * t) + 1] = 0.25f, scales.values[size_t(3 * t) + 2] = -2.0f;
    ones.values[size_t(t)] = 1;
  }
  heddle_lora_batch batch{}, ids = site.batch();
  batch.pair_starts = starts.c();
  batch.pair_slots = slots.c();
  batch.pair_scales = scales.c();
  Array<float> y({kTokens, kOut}), want({kTokens, kOut});
  DLTensor* const ys[] = {y.c()};
  DLTensor* const wants[] = {want.c()};
  const auto apply = [&](DLTensor* const* to, const heddle_lora_batch& rows) {
    return heddle_lora_apply(context, to, 1, site.x.c(), &a.table, &b.table, &rows);
  };
  const int64_t one = 1;
  batch.max_pairs = &one;
  expect_ok(apply(ys, batch));
  expect_ok(apply(wants, ids));
  EXPECT_EQ(y, want) << "the first pair alone";
  batch.max_pairs = nullptr;
  y.values.assign(kTokens * kOut, 0.0f);
  want.values.assign(kTokens * kOut, 0.0f);
  expect_ok(apply(ys, batch));
  expect_ok(apply(wants, ids));
  ids.slot_ids = ones.c();
  ids.row_scale = rest.c();
  for (const float scale : {0.25f, -2.0f}) {
    rest.values.assign(kTokens, scale);
    expect_ok(apply(wants, ids));
  }
  EXPECT_EQ(y, want);
  batch.slot_ids = site.ids.c();
  expect_failure(HEDDLE_INVALID_ARGUMENT, "the batch has pairs and slot_ids or segments",
                 apply(ys, batch));
}

TEST(CApiLora, AnAlignedTableRefusesWhatDoesNotFit) {
  const Context context(1);
  const int64_t features = kIn;
  heddle_adapter_table* table = nullptr;
  expect_ok(heddle_adapter_table_create_aligned(context, &table, kSlots, &features, 1, kRank,
                                                {kDLFloat, 32, 1}, HEDDLE_LORA_RANK_MAJOR));
  std::vector<float> weight(kRank * kIn);
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "the rank of weight is 6, expected a multiple of 4",
      heddle_adapter_table_set(context, table, 0, 0, CTensor(weight.data(), {6, kIn}).get(), 1.0f));
  heddle_adapter_table_destroy(table);
}

TEST(CApiLora, PlansHaveTheBytesOfCpp) {
  EXPECT_GT(heddle_lora_plan_bytes(300, 40), heddle_lora_plan_bytes(300, 16));
  EXPECT_EQ(heddle_lora_plan_bytes(300, 40), lora_plan_bytes(300, 40));
  const Context context(1);
  const heddle_lora_batch batch{};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "plan is NULL",
                 heddle_lora_plan(context, nullptr, &batch, 4, 1, 8, nullptr));
  alignas(256) uint8_t memory[1 << 15];
  Array<int32_t> ids({4});
  heddle_lora_batch rows{};
  rows.slot_ids = ids.c();
  ASSERT_LE(heddle_lora_plan_bytes(4, 8), sizeof(memory));
  const CTensor plan(memory, {sizeof(memory)}), small(memory, {256});
  expect_failure(HEDDLE_INVALID_ARGUMENT, "plan.size(0) is 256, expected at least",
                 heddle_lora_plan(context, small.get(), &rows, 4, 1, 8, nullptr));
  expect_failure(HEDDLE_UNSUPPORTED, "lora_plan: cpu needs no plan",
                 heddle_lora_plan(context, plan.get(), &rows, 4, 1, 8, nullptr));
}

TEST(CApiLora, TwoContextsRunSideBySide) {
  constexpr int kRounds = 50;
  const auto worker = [](int* num_equal) {
    const Context context(2);
    for (int round = 0; round < kRounds; ++round) {
      // What the site holds was computed by C++ in this thread alone.
      static std::mutex drawing;  // the tests' generator is one for all threads
      std::optional<Site> site;
      {
        const std::lock_guard lock(drawing);
        site.emplace();
      }
      Array<float> h({kTokens, kRank}), y({kTokens, kOut});
      run_tables(context, *site, h, y);
      *num_equal += int{h == site->h && y == site->y};
    }
  };
  int equal[2] = {0, 0};
  std::thread one(worker, &equal[0]), two(worker, &equal[1]);
  one.join();
  two.join();
  EXPECT_EQ(equal[0], kRounds);
  EXPECT_EQ(equal[1], kRounds);
}

}  // namespace
}  // namespace heddle::testing
