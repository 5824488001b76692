#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"
#include "heddle/ops/lora_table.h"

#include "compare.h"
#include "ops/lora/test/lora_test_body.h"
#include "poison.h"
#include "random.h"

// The bodies of the tests of weights by address and in an AdapterTable, the same for every device.

namespace heddle::testing {

/// Adapters of one rank as pages [num_layers, outer, inner] of their own, and a layer of them
/// stacked.
template <class T>
struct Pages {
  static constexpr int64_t kNumSlots = 3, kNumLayers = 4;
  int64_t outer, inner, layer = random_int(0, kNumLayers - 1);
  std::vector<std::vector<T>> pages;
  std::vector<T> stack;
  std::vector<int64_t> addresses;  // every other one is wild: the table is a strided view

  Pages(int64_t outer, int64_t inner) : outer(outer), inner(inner) {
    for (int s = 0; s < kNumSlots; ++s) {
      pages.push_back(random_normal<T>(size_t(kNumLayers * outer * inner)));
      const auto begin = pages.back().begin() + layer * outer * inner;
      stack.insert(stack.end(), begin, begin + outer * inner);
      addresses.push_back(reinterpret_cast<int64_t>(pages.back().data()));
      addresses.push_back(-1);
    }
  }
  [[nodiscard]] ConstTensorView stacked() const {
    return host_view(stack.data(), {kNumSlots, outer, inner});
  }
  [[nodiscard]] ConstTensorView weight(int64_t slot) const {
    return host_view(stack.data() + slot * outer * inner, {outer, inner});
  }
  [[nodiscard]] ConstTensorView pointers() const {
    const std::array<int64_t, 1> shape{kNumSlots}, strides{2};
    return {
        reinterpret_cast<const std::byte*>(addresses.data()), DType::kInt64, {}, shape, strides};
  }
  [[nodiscard]] LoraTable table(LoraLayout layout) const {
    const bool rank_major = layout == LoraLayout::kRankMajor;
    return LoraTable::from_pointers(pointers(), kDType<T>, layout, rank_major ? outer : inner,
                                    rank_major ? inner : outer, layer);
  }
};

inline constexpr int64_t kTableTokens = 11, kTableRank = 24, kTableFeatures = 203;
inline constexpr std::array kLayouts{LoraLayout::kRankMajor, LoraLayout::kRankMinor};

inline std::vector<int64_t> random_table_ids() {
  std::vector<int64_t> ids;
  for (int t = 0; t < kTableTokens; ++t) ids.push_back(random_int(-1, 3));
  return ids;
}

template <class T>
bool same(const PoisonedBuffer<T>& a, const PoisonedBuffer<T>& b) {
  return a.guards_intact() && b.guards_intact() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
ConstTensorView const_view(const std::vector<T>& values, std::initializer_list<int64_t> shape) {
  return host_view(values.data(), shape);
}

/// X, W: dtypes of x and h, and of the weights.
template <class X, class W>
void expect_addresses_give_the_bits_of_stacked_weights(const LoraRun& run, LoraLayout layout,
                                                       int64_t features) {
  constexpr int64_t n = kTableTokens, rank = kTableRank;
  const bool rank_major = layout == LoraLayout::kRankMajor;
  Pages<W> pages(rank_major ? rank : features, rank_major ? features : rank);
  const std::vector<int64_t> ids = random_table_ids();
  const auto x = random_normal<X>(size_t(n * features)), h = random_normal<X>(size_t(n * rank));
  PoisonedBuffer<float> shrunk(h.size()), shrunk_by_address(h.size());
  PoisonedBuffer<float> grown(x.size()), grown_by_address(x.size());

  Workspace workspace = run.workspace(n, features, 1, rank);
  const ExecContext ctx = run.with(workspace);
  const LoraBatch batch =
      run.batch(LoraBatch::from_ids(const_view(ids, {n})), n, pages.kNumSlots, rank);
  const ConstTensorView x_there = run.mirror(const_view(x, {n, features}));
  const ConstTensorView h_there = run.mirror(const_view(h, {n, rank}));
  const ConstTensorView stack = run.mirror(pages.stacked());
  LoraTable table = run.table(pages.table(layout), {&features, 1});
  table.is_aligned = features % 8 == 0;  // and so is the rank
  lora_shrink(ctx, run.mirror(shrunk.view({n, rank})), x_there, stack, batch, 0.7f, false, layout);
  lora_shrink(ctx, run.mirror(shrunk_by_address.view({n, rank})), x_there, table, 0, batch, 0.7f);
  lora_expand(ctx, run.mirror(grown.view({n, features})), h_there, stack, batch, 0, 0.7f, false,
              layout);
  lora_expand(ctx, run.mirror(grown_by_address.view({n, features})), h_there, table, 0, features,
              batch, 0, 0.7f, false);
  run.mirror.back();
  EXPECT_TRUE(same(shrunk, shrunk_by_address));
  EXPECT_TRUE(same(grown, grown_by_address));
  for (int64_t t = 0; t < n; ++t) {
    const bool is_none = ids[size_t(t)] < 0 || ids[size_t(t)] >= pages.kNumSlots;
    EXPECT_EQ(shrunk.untouched(size_t(t * rank)), is_none);
    EXPECT_EQ(grown.untouched(size_t(t * features)), is_none);
  }
}
template <class X, class W>
void expect_addresses_give_the_bits_of_stacked_weights(const LoraRun& run) {
  for (const LoraLayout layout : kLayouts) {
    for (const int64_t features : {kTableFeatures, int64_t{256}}) {
      expect_addresses_give_the_bits_of_stacked_weights<X, W>(run, layout, features);
    }
  }
}

template <class X, class W>
void expect_an_adapter_table_gives_the_bits_of_stacked_weights(const LoraRun& run) {
  constexpr int64_t n = kTableTokens, rank = kTableRank, features = kTableFeatures;
  for (const LoraLayout layout : kLayouts) {
    const bool rank_major = layout == LoraLayout::kRankMajor;
    Pages<W> pages(rank_major ? rank : features, rank_major ? features : rank);
    const std::array<int64_t, 2> both{5, features};
    AdapterTable table(run.ctx, 3, both, rank, kDType<W>, layout);
    for (int32_t slot = 0; slot < 3; ++slot) {
      table.set(run.ctx, slot, 1, run.mirror(pages.weight(slot)), 2.0f);
    }
    const std::vector<int64_t> ids = random_table_ids();
    const auto h = random_normal<X>(size_t(n * rank));
    PoisonedBuffer<float> want(n * features), got(n * features);
    Workspace workspace = run.workspace(n, 0, 1, rank);
    const ExecContext ctx = run.with(workspace);
    const LoraBatch batch =
        run.batch(LoraBatch::from_ids(const_view(ids, {n})), n, pages.kNumSlots, rank);
    const ConstTensorView h_there = run.mirror(const_view(h, {n, rank}));
    lora_expand(ctx, run.mirror(want.view({n, features})), h_there, run.mirror(pages.stacked()),
                batch, 0, 1.5f, false, layout);
    lora_expand(ctx, run.mirror(got.view({n, features})), h_there, table.view(), 1, features, batch,
                0, 0.75f, false);  // the table's scale is 2
    run.mirror.back();
    EXPECT_TRUE(same(want, got));
  }
}

template <class X, class W>
void expect_apply_mixes_addresses_and_entries(const LoraRun& run) {
  constexpr int64_t rank = kTableRank, features = kTableFeatures;
  Pages<W> a(rank, features);
  const std::array<int64_t, 1> of_site{features};
  AdapterTable b(run.ctx, 3, of_site, rank, kDType<W>, LoraLayout::kRankMajor);
  const auto weight = random_normal<W>(size_t(rank * features));
  for (const int32_t slot : {0, 2}) {
    b.set(run.ctx, slot, 0, run.mirror(const_view(weight, {rank, features})));
  }
  a.addresses[0] = 0;  // so only slot 2 has both halves
  const std::vector<int32_t> ids{0, 1, 2};
  const auto x = random_normal<X>(3 * features);
  const auto start = random_normal<float>(3 * features);
  std::vector<float> y = start, want = start, h(rank);

  Workspace workspace = run.workspace(3, features, 1, rank);
  const ExecContext ctx = run.with(workspace);
  const LoraTable a_there = run.table(a.table(LoraLayout::kRankMajor), of_site);
  const ConstTensorView x_there = run.mirror(const_view(x, {3, features}));
  const LoraSlice slice{run.mirror(host_view(y.data(), {3, features}))};
  lora_apply(ctx, {&slice, 1}, x_there, a_there, b.view(),
             run.batch(LoraBatch::from_ids(const_view(ids, {3})), 3, 3, rank));
  const LoraBatch last = run.batch(LoraBatch::from_ids(host_view(ids.data() + 2, {1})), 1, 3, rank);
  const TensorView h_there = run.mirror(host_view(h.data(), {1, rank}));
  lora_shrink(ctx, h_there, x_there.narrow(0, 2, 1), a_there, 0, last);
  lora_expand(ctx, run.mirror(host_view(want.data() + 2 * features, {1, features})), h_there,
              b.view(), 0, features, last);
  run.mirror.back();
  EXPECT_TRUE(same_bits<float>(y, want));
  EXPECT_FALSE(same_bits<float>(y, start));
}

template <class T>
void expect_a_null_address_touches_nothing_and_empty_tables_are_legal(const LoraRun& run) {
  Pages<T> pages(2, 3);
  for (int64_t& address : pages.addresses) address = 0;
  const std::vector<int32_t> ids{0, 1, 2};
  const std::vector<T> x(9, from_float<T>(1.0f));
  const std::vector<int64_t> features{3};
  PoisonedBuffer<float> y(6);
  const ConstTensorView none = host_view(pages.addresses.data(), {0});
  for (const LoraTable& table :
       {pages.table(LoraLayout::kRankMajor),
        LoraTable::from_pointers(none, kDType<T>, LoraLayout::kRankMajor, 2, 3)}) {
    Workspace workspace = run.workspace(3, 3, 1, 2);
    lora_shrink(run.with(workspace), run.mirror(y.view({3, 2})), run.mirror(const_view(x, {3, 3})),
                run.table(table, features), 0,
                run.batch(LoraBatch::from_ids(const_view(ids, {3})), 3, table.num_slots, 2));
    run.mirror.back();
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(y.untouched(i));
  }
}

/// T: dtype of x and the weights.
template <class T>
void expect_a_rank_above_the_limit_goes_in_parts(const LoraRun& run) {
  constexpr int64_t kLarge = 700, kIn = 5;
  Pages<T> pages(kLarge, kIn);
  const std::vector<int32_t> ids{2};
  const auto x = random_normal<T>(kIn);
  std::vector<float> y(kLarge);
  const std::vector<int64_t> features{kIn};
  const LoraTable table = pages.table(LoraLayout::kRankMajor);
  for (int64_t first = 0; first < kLarge; first += kMaxLoraRank) {
    const int64_t part = std::min<int64_t>(kMaxLoraRank, kLarge - first);
    LoraTable of_part = table;
    of_part.max_rank = static_cast<int32_t>(part);
    of_part.element_offset += first * table.row_stride;
    Workspace workspace = run.workspace(1, kIn, 1, kMaxLoraRank);
    lora_shrink(
        run.with(workspace), run.mirror(host_view(y.data() + first, {1, part})),
        run.mirror(const_view(x, {1, kIn})), run.table(of_part, features), 0,
        run.batch(LoraBatch::from_ids(const_view(ids, {1})), 1, pages.kNumSlots, of_part.max_rank));
    run.mirror.back();
  }
  for (int64_t r = 0; r < kLarge; ++r) {
    double sum = 0.0;
    for (int64_t k = 0; k < kIn; ++k) {
      sum += double{to_float(x[size_t(k)])} *
             double{to_float(pages.stack[size_t((2 * kLarge + r) * kIn + k)])};
    }
    ASSERT_NEAR(y[size_t(r)], sum, 1e-5);
  }
}

template <class T>
void expect_a_cleared_slot_touches_nothing(const LoraRun& run) {
  const std::array<int64_t, 2> features{3, 4};
  AdapterTable table(run.ctx, 2, features, 8, kDType<T>, LoraLayout::kRankMajor);
  const LoraTable view = table.view();  // sees what comes later
  const std::vector<T> weight(2 * 4, from_float<T>(1.0f)), x = weight;
  const std::vector<int32_t> ids{0, 1};
  PoisonedBuffer<float> y(4);
  const auto shrink = [&] {  // ends the mirrored weights, too
    Workspace workspace = run.workspace(2, 4, 1, 8);
    lora_shrink(run.with(workspace), run.mirror(y.view({2, 2})), run.mirror(const_view(x, {2, 4})),
                view, 1, run.batch(LoraBatch::from_ids(const_view(ids, {2})), 2, 2, 8));
    run.mirror.back();
  };
  table.set(run.ctx, 0, 0, run.mirror(const_view(weight, {2, 3})));
  table.set(run.ctx, 0, 1, run.mirror(const_view(weight, {2, 4})));
  table.clear(run.ctx, 0);
  shrink();
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(y.untouched(i));
  table.set(run.ctx, 1, 1, run.mirror(const_view(weight, {2, 4})));
  shrink();
  EXPECT_TRUE(y.untouched(0) && y.untouched(1));
  EXPECT_EQ(y[2], 4.0f);
  EXPECT_EQ(y[3], 4.0f);
}

}  // namespace heddle::testing
