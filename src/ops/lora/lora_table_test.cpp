// Weights by address and in an AdapterTable: the same bits as stacked weights, and what a wrong call says.
#include "heddle/ops/lora_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"

#include "compare.h"
#include "expect_error.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::expect_unsupported;

/// Adapters of one rank as pages [num_layers, outer, inner] of their own, and a layer of them stacked.
template <class T>
struct Pages {
  static constexpr int64_t kNumSlots = 3, kNumLayers = 4;
  int64_t outer, inner, layer = testing::random_int(0, kNumLayers - 1);
  std::vector<std::vector<T>> pages;
  std::vector<T> stack;
  std::vector<int64_t> addresses;  // every other one is wild: the table is a strided view

  Pages(int64_t outer, int64_t inner) : outer(outer), inner(inner) {
    for (int s = 0; s < kNumSlots; ++s) {
      pages.push_back(testing::random_normal<T>(size_t(kNumLayers * outer * inner)));
      const auto begin = pages.back().begin() + layer * outer * inner;
      stack.insert(stack.end(), begin, begin + outer * inner);
      addresses.push_back(reinterpret_cast<int64_t>(pages.back().data()));
      addresses.push_back(-1);
    }
  }
  [[nodiscard]] ConstTensorView stacked() const {
    return host_view(stack.data(), {kNumSlots, outer, inner});
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

template <class T>
class LoraTableBits : public ::testing::Test {};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(LoraTableBits, AllTypes);

constexpr int64_t kNumTokens = 11, kRank = 24, kFeatures = 203;
constexpr std::array kLayouts{LoraLayout::kRankMajor, LoraLayout::kRankMinor};

std::vector<int64_t> random_ids() {
  std::vector<int64_t> ids;
  for (int t = 0; t < kNumTokens; ++t) ids.push_back(testing::random_int(-1, 3));
  return ids;
}

template <class T>
bool same(const testing::PoisonedBuffer<T>& a, const testing::PoisonedBuffer<T>& b) {
  return a.guards_intact() && b.guards_intact() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TYPED_TEST(LoraTableBits, AddressesGiveTheBitsOfStackedWeights) {
  for (const LoraLayout layout : kLayouts) {
    const bool rank_major = layout == LoraLayout::kRankMajor;
    Pages<TypeParam> pages(rank_major ? kRank : kFeatures, rank_major ? kFeatures : kRank);
    const std::vector<int64_t> ids = random_ids();
    const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {kNumTokens}));
    const auto x = testing::random_normal<float>(size_t(kNumTokens * kFeatures));
    const auto h = testing::random_normal<float>(size_t(kNumTokens * kRank));
    testing::PoisonedBuffer<float> shrunk(h.size()), shrunk_by_address(h.size());
    testing::PoisonedBuffer<float> grown(x.size()), grown_by_address(x.size());

    lora_shrink({}, shrunk.view({kNumTokens, kRank}), host_view(x.data(), {kNumTokens, kFeatures}),
                pages.stacked(), batch, 0.7f, false, layout);
    lora_shrink({}, shrunk_by_address.view({kNumTokens, kRank}),
                host_view(x.data(), {kNumTokens, kFeatures}), pages.table(layout), 0, batch, 0.7f);
    EXPECT_TRUE(same(shrunk, shrunk_by_address));
    lora_expand({}, grown.view({kNumTokens, kFeatures}), host_view(h.data(), {kNumTokens, kRank}),
                pages.stacked(), batch, 0, 0.7f, false, layout);
    lora_expand({}, grown_by_address.view({kNumTokens, kFeatures}),
                host_view(h.data(), {kNumTokens, kRank}), pages.table(layout), 0, kFeatures, batch,
                0, 0.7f, false);
    EXPECT_TRUE(same(grown, grown_by_address));
  }
}

TYPED_TEST(LoraTableBits, AnAdapterTableGivesTheBitsOfStackedWeights) {
  for (const LoraLayout layout : kLayouts) {
    const bool rank_major = layout == LoraLayout::kRankMajor;
    Pages<TypeParam> pages(rank_major ? kRank : kFeatures, rank_major ? kFeatures : kRank);
    const std::array<int64_t, 2> features{5, kFeatures};
    AdapterTable table({}, 3, features, kRank, kDType<TypeParam>, layout);
    for (int32_t slot = 0; slot < 3; ++slot) {
      const auto weight = host_view(pages.stack.data() + slot * pages.outer * pages.inner,
                                    {pages.outer, pages.inner});
      table.set({}, slot, 1, weight, 2.0f);
    }
    const std::vector<int64_t> ids = random_ids();
    const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {kNumTokens}));
    const auto h = testing::random_normal<float>(size_t(kNumTokens * kRank));
    testing::PoisonedBuffer<float> want(kNumTokens * kFeatures), got(kNumTokens * kFeatures);
    lora_expand({}, want.view({kNumTokens, kFeatures}), host_view(h.data(), {kNumTokens, kRank}),
                pages.stacked(), batch, 0, 1.5f, false, layout);
    lora_expand({}, got.view({kNumTokens, kFeatures}), host_view(h.data(), {kNumTokens, kRank}),
                table.view(), 1, kFeatures, batch, 0, 0.75f, false);  // the table's scale is 2
    EXPECT_TRUE(same(want, got));
  }
}

TYPED_TEST(LoraTableBits, ApplyMixesAddressesAndEntries) {
  Pages<TypeParam> a(kRank, kFeatures);
  const std::array<int64_t, 1> features{kFeatures};
  AdapterTable b({}, 3, features, kRank, kDType<TypeParam>, LoraLayout::kRankMajor);
  const auto weight = testing::random_normal<TypeParam>(size_t(kRank * kFeatures));
  for (const int32_t slot : {0, 2})
    b.set({}, slot, 0, host_view(weight.data(), {kRank, kFeatures}));
  a.addresses[0] = 0;  // so only slot 2 has both halves
  std::vector<std::byte> memory(lora_apply_workspace_bytes(3, 1, kRank));
  Workspace workspace(memory);
  ExecContext ctx;
  ctx.workspace = &workspace;
  const std::vector<int32_t> ids{0, 1, 2};
  const auto x = testing::random_normal<float>(3 * kFeatures);
  const auto start = testing::random_normal<float>(3 * kFeatures);
  std::vector<float> y = start, want = start, h(kRank);
  const LoraSlice slice{host_view(y.data(), {3, kFeatures})};
  lora_apply(ctx, {&slice, 1}, host_view(x.data(), {3, kFeatures}), a.table(LoraLayout::kRankMajor),
             b.view(), LoraBatch::from_ids(host_view(ids.data(), {3})));
  const LoraBatch last = LoraBatch::from_ids(host_view(ids.data() + 2, {1}));
  lora_shrink(ctx, host_view(h.data(), {1, kRank}),
              host_view(x.data() + 2 * kFeatures, {1, kFeatures}), a.table(LoraLayout::kRankMajor),
              0, last);
  lora_expand(ctx, host_view(want.data() + 2 * kFeatures, {1, kFeatures}),
              host_view(h.data(), {1, kRank}), b.view(), 0, kFeatures, last);
  EXPECT_TRUE(testing::same_bits<float>(y, want));
  EXPECT_FALSE(testing::same_bits<float>(y, start));
}

TEST(LoraPointers, ANullAddressTouchesNothingAndEmptyTablesAreLegal) {
  Pages<float> pages(2, 3);
  for (int64_t& address : pages.addresses) address = 0;
  const std::vector<int32_t> ids{0, 1, 2};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {3}));
  const std::vector<float> x(9, 1.0f);
  testing::PoisonedBuffer<float> y(6);
  lora_shrink({}, y.view({3, 2}), host_view(x.data(), {3, 3}), pages.table(LoraLayout::kRankMajor),
              0, batch);
  const ConstTensorView none = host_view(pages.addresses.data(), {0});
  lora_shrink({}, y.view({3, 2}), host_view(x.data(), {3, 3}),
              LoraTable::from_pointers(none, DType::kFloat32, LoraLayout::kRankMajor, 2, 3), 0,
              batch);
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(y.untouched(i));
}

TEST(LoraPointers, ARankAboveTheLimitGoesInParts) {
  constexpr int64_t kLarge = 700;
  Pages<float> pages(kLarge, 5);
  const std::vector<int32_t> ids{2};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {1}));
  const auto x = testing::random_normal<float>(5);
  std::vector<float> y(kLarge);
  LoraTable table = pages.table(LoraLayout::kRankMajor);
  for (int64_t first = 0; first < kLarge; first += kMaxLoraRank) {
    const int64_t part = std::min<int64_t>(kMaxLoraRank, kLarge - first);
    LoraTable of_part = table;
    of_part.max_rank = static_cast<int32_t>(part);
    of_part.element_offset += first * table.row_stride;
    lora_shrink({}, host_view(y.data() + first, {1, part}), host_view(x.data(), {1, 5}), of_part, 0,
                batch);
  }
  for (int64_t r = 0; r < kLarge; ++r) {
    double sum = 0.0;
    for (int64_t k = 0; k < 5; ++k) {
      sum += double{x[size_t(k)]} * double{pages.stack[size_t((2 * kLarge + r) * 5 + k)]};
    }
    ASSERT_NEAR(y[size_t(r)], sum, 1e-5);
  }
}

TEST(LoraPointers, ErrorsNameTheArgument) {
  const std::vector<int64_t> addresses(3);
  const std::vector<int32_t> narrow(3);
  const auto make = [&](const ConstTensorView& pointers, DType dtype, int64_t rank,
                        int64_t layer_idx) {
    (void)LoraTable::from_pointers(pointers, dtype, LoraLayout::kRankMajor, rank, 4, layer_idx);
  };
  expect_unsupported({"pointers is i32, supported: i64"},
                     [&] { make(host_view(narrow.data(), {3}), DType::kFloat32, 2, 0); });
  expect_invalid({"pointers has rank 2, expected 1"}, [&] {
    make(host_view(addresses.data(), {3, 1}), DType::kFloat32, 2, 0);
  });
  expect_unsupported({"dtype is i32"},
                     [&] { make(host_view(addresses.data(), {3}), DType::kInt32, 2, 0); });
  expect_invalid({"layer_idx is -1, expected at least 0"},
                 [&] { make(host_view(addresses.data(), {3}), DType::kFloat32, 2, -1); });
  expect_invalid({"rank is -2, expected 0"},
                 [&] { make(host_view(addresses.data(), {3}), DType::kFloat32, -2, 0); });
}

TEST(AdapterTable, AClearedSlotTouchesNothing) {
  const std::array<int64_t, 2> features{3, 4};
  AdapterTable table({}, 2, features, 8, DType::kFloat32, LoraLayout::kRankMajor);
  const LoraTable view = table.view();  // sees what comes later
  const std::vector<float> weight(2 * 4, 1.0f), x(8, 1.0f);
  const std::vector<int32_t> ids{0, 1};
  testing::PoisonedBuffer<float> y(4);
  const auto shrink = [&] {
    lora_shrink({}, y.view({2, 2}), host_view(x.data(), {2, 4}), view, 1,
                LoraBatch::from_ids(host_view(ids.data(), {2})));
  };
  table.set({}, 0, 0, host_view(weight.data(), {2, 3}));
  table.set({}, 0, 1, host_view(weight.data(), {2, 4}));
  table.clear({}, 0);
  shrink();
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(y.untouched(i));
  table.set({}, 1, 1, host_view(weight.data(), {2, 4}));
  shrink();
  EXPECT_TRUE(y.untouched(0) && y.untouched(1));
  EXPECT_EQ(y[2], 4.0f);
  EXPECT_EQ(y[3], 4.0f);
}

TEST(AdapterTable, ErrorsNameTheArgument) {
  const std::array<int64_t, 2> features{3, 4}, negative{3, -4};
  const auto make = [&](std::span<const int64_t> of, int32_t slots, int32_t rank, DType dtype) {
    AdapterTable({}, slots, of, rank, dtype, LoraLayout::kRankMinor);
  };
  expect_invalid({"features[1] is -4, expected at least 0"},
                 [&] { make(negative, 2, 8, DType::kFloat32); });
  expect_invalid({"features is empty"}, [&] { make({}, 2, 8, DType::kFloat32); });
  expect_invalid({"num_slots is -1"}, [&] { make(features, -1, 8, DType::kFloat32); });
  expect_invalid({"max_rank is 513, expected 0 to 512"},
                 [&] { make(features, 2, 513, DType::kFloat32); });
  expect_unsupported({"dtype is i64"}, [&] { make(features, 2, 8, DType::kInt64); });

  AdapterTable table({}, 2, features, 8, DType::kFloat32, LoraLayout::kRankMinor);
  const std::vector<float> w(64);
  const auto set = [&](int32_t slot, int32_t slice, const ConstTensorView& weight) {
    table.set({}, slot, slice, weight);
  };
  expect_invalid({"slot is 2, expected 0 to 1"}, [&] { set(2, 0, host_view(w.data(), {3, 2})); });
  expect_invalid({"slot is -1, expected 0 to 1"}, [&] { table.clear({}, -1); });
  expect_invalid({"slice is 2, expected 0 to 1"}, [&] { set(0, 2, host_view(w.data(), {3, 2})); });
  expect_invalid({"weight.size(0) is 3, expected features[slice] = 4"}, [&] {
    set(0, 1, host_view(w.data(), {3, 2}));
  });
  expect_invalid({"weight.size(1) is rank = 9, expected 1 to max_rank = 8"}, [&] {
    set(0, 0, host_view(w.data(), {3, 9}));
  });
  expect_unsupported({"weight is f16, supported: f32"}, [&] {
    const std::vector<half> h(6);
    set(0, 0, host_view(h.data(), {3, 2}));
  });
  ExecContext elsewhere;
  elsewhere.device = {DeviceType::kCuda, 0};
  expect_invalid({"the table is on cpu"}, [&] { table.clear(elsewhere, 0); });
  expect_unsupported({"AdapterTable"}, [&] {
    AdapterTable(elsewhere, 1, features, 8, DType::kFloat32, LoraLayout::kRankMinor);
  });
}

TEST(AdapterTable, TheOpsCheckItsFeatures) {
  const std::array<int64_t, 1> features{3};
  const AdapterTable table({}, 2, features, 2, DType::kFloat32, LoraLayout::kRankMajor);
  const std::vector<float> x(8);
  const std::vector<int32_t> ids{0, 1};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {2}));
  testing::PoisonedBuffer<float> y(8);
  expect_invalid({"x.size(1) is 4, expected a.features[0] = 3"}, [&] {
    lora_shrink({}, y.view({2, 2}), host_view(x.data(), {2, 4}), table.view(), 0, batch);
  });
  expect_invalid({"out_features is 4, expected b.features[0] = 3"}, [&] {
    lora_expand({}, y.view({2, 4}), host_view(x.data(), {2, 2}), table.view(), 0, 4, batch);
  });
  const LoraSlice slice{y.view({2, 4})};
  expect_invalid({"x.size(1) is 4, expected a.features[0] = 3"}, [&] {
    lora_apply({}, {&slice, 1}, host_view(x.data(), {2, 4}), table.view(), table.view(), batch);
  });
  expect_invalid({"slices[0].y.size(1) is 4, expected b.features[0] = 3"}, [&] {
    lora_apply({}, {&slice, 1}, host_view(x.data(), {2, 3}), table.view(), table.view(), batch);
  });
}

}  // namespace
}  // namespace heddle
