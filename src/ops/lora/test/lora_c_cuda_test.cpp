#include "heddle/ops/lora.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "compare.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

constexpr int64_t kTokens = 13, kIn = 256, kOut = 96, kRank = 8, kSlots = 3;
constexpr DLDataType kHalf{kDLFloat, 16, 1};

/// A linear site with its adapters, on both sides; `want` is y after the adapters of scale 2, in
/// double.
struct Site {
  std::vector<half> x = random_normal<half>(kTokens * kIn);
  std::vector<half> a = random_normal<half>(kSlots * kRank * kIn);
  std::vector<half> b = random_normal<half>(kSlots * kOut * kRank);
  std::vector<half> y = random_normal<half>(kTokens * kOut);
  std::vector<int64_t> ids;
  std::vector<double> want;
  DeviceBuffer<half> x_there{x}, a_there{a}, b_there{b}, y_there{y};
  DeviceBuffer<int64_t> ids_there{kTokens};

  Site() {
    for (int64_t t = 0; t < kTokens; ++t) ids.push_back(random_int(-1, kSlots - 1));
    ids_there.upload(ids);
    for (const half v : y) want.push_back(to_float(v));
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t slot = ids[size_t(t)];
      for (int64_t r = 0; slot >= 0 && r < kRank; ++r) {
        const double h = dot(&a[size_t((slot * kRank + r) * kIn)], &x[size_t(t * kIn)]);
        for (int64_t n = 0; n < kOut; ++n) {
          want[size_t(t * kOut + n)] += 2 * h * to_float(b[size_t((slot * kOut + n) * kRank + r)]);
        }
      }
    }
  }
  /// Of kIn elements, in double.
  static double dot(const half* u, const half* v) {
    double sum = 0;
    for (int64_t k = 0; k < kIn; ++k) sum += double{to_float(u[k])} * double{to_float(v[k])};
    return sum;
  }
  void expect_y() const {
    EXPECT_LT(relative_error<half>(y_there.download(), want), 2e-3);
    EXPECT_TRUE(y_there.guards_intact());
  }
};

TEST_F(CApiCuda, StackedWeights) {
  const Site site;
  const DeviceBuffer<float> h(kTokens * kRank);
  const OnDevice ids(site.ids_there, {kTokens}), x(site.x_there, {kTokens, kIn}),
      a(site.a_there, {kSlots, kRank, kIn}), b(site.b_there, {kSlots, kOut, kRank}),
      y(site.y_there, {kTokens, kOut}), rows(h, {kTokens, kRank});
  heddle_lora_batch batch{};
  batch.slot_ids = ids.get();
  expect_ok(heddle_lora_shrink(context_, rows.get(), x.get(), a.get(), &batch, 1.0f, false,
                               HEDDLE_LORA_RANK_MAJOR));
  expect_ok(heddle_lora_expand(context_, y.get(), rows.get(), b.get(), &batch, 0, 2.0f, true,
                               HEDDLE_LORA_RANK_MINOR));
  site.expect_y();
}

/// How a call names the adapters of its rows.
enum class Rows { kIds, kPlannedIds, kPairs };

/// The ids of the site as two pairs for each token, the first of scale 0.75, the second of scale
/// 0.25.
struct Pairs {
  DeviceBuffer<int32_t> starts{kTokens + 1};
  DeviceBuffer<int64_t> slots{2 * kTokens};
  DeviceBuffer<float> scales{2 * kTokens};

  explicit Pairs(const Site& site) {
    std::vector<int32_t> all_starts;
    std::vector<int64_t> all_slots;
    std::vector<float> all_scales;
    for (int32_t t = 0; t <= kTokens; ++t) all_starts.push_back(2 * t);
    for (const int64_t id : site.ids) {
      all_slots.insert(all_slots.end(), {id, id});
      all_scales.insert(all_scales.end(), {0.75f, 0.25f});
    }
    starts.upload(all_starts);
    slots.upload(all_slots);
    scales.upload(all_scales);
  }
};

/// y of the site by lora_apply with adapter tables.
void apply_tables(heddle_context* context, const Site& site, Rows rows) {
  const int64_t in = kIn, out = kOut;
  heddle_lora_table tables[2];
  heddle_adapter_table* halves[2] = {};
  expect_ok(heddle_adapter_table_create_aligned(context, &halves[0], kSlots, &in, 1, kRank, kHalf,
                                                HEDDLE_LORA_RANK_MAJOR));
  expect_ok(heddle_adapter_table_create(context, &halves[1], kSlots, &out, 1, kRank, kHalf,
                                        HEDDLE_LORA_RANK_MINOR));
  for (int i = 0; i < 2; ++i) {
    heddle_lora_table_init(&tables[i]);
    tables[i].adapters = halves[i];
  }
  const DeviceBuffer<half>* weights[2] = {&site.a_there, &site.b_there};
  const int64_t widths[2] = {kIn, kOut};
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    for (int i = 0; i < 2; ++i) {
      OnDevice weight(*weights[i], {i == 0 ? kRank : kOut, i == 0 ? kIn : kRank});
      weight.get()->byte_offset = size_t(slot * kRank * widths[i]) * sizeof(half);
      expect_ok(heddle_adapter_table_set(context, halves[i], slot, 0, weight.get(),
                                         i == 0 ? 9.0f : 2.0f));
    }
  }
  const DeviceBuffer<uint8_t> memory(heddle_lora_plan_bytes(kTokens, kRank));
  const OnDevice ids(site.ids_there, {kTokens}), x(site.x_there, {kTokens, kIn}),
      y(site.y_there, {kTokens, kOut}), plan(memory, {static_cast<int64_t>(memory.size())});
  const Pairs pairs(site);
  const OnDevice starts(pairs.starts, {kTokens + 1}), slots(pairs.slots, {2 * kTokens}),
      scales(pairs.scales, {2 * kTokens});
  const int64_t max_pairs = 2;
  heddle_lora_batch batch{};
  if (rows == Rows::kPairs) {
    batch.pair_starts = starts.get();
    batch.pair_slots = slots.get();
    batch.pair_scales = scales.get();
    batch.max_pairs = &max_pairs;
  } else {
    batch.slot_ids = ids.get();
  }
  if (rows == Rows::kPlannedIds) {
    expect_ok(heddle_lora_plan(context, plan.get(), &batch, kTokens, kSlots, kRank, nullptr));
    batch.plan = plan.get();
  }
  DLTensor* const ys[] = {y.get()};
  expect_ok(heddle_lora_apply(context, ys, 1, x.get(), &tables[0], &tables[1], &batch));
  site.expect_y();
  for (heddle_adapter_table* half_table : halves) heddle_adapter_table_destroy(half_table);
}

TEST_F(CApiCuda, AdapterTables) { apply_tables(context_, Site(), Rows::kIds); }

TEST_F(CApiCuda, AdapterTablesWithAPlan) { apply_tables(context_, Site(), Rows::kPlannedIds); }

TEST_F(CApiCuda, AdapterTablesWithPairs) { apply_tables(context_, Site(), Rows::kPairs); }

}  // namespace
}  // namespace heddle::testing
