// Tables that promise aligned weights: what they take, what they refuse, and that the promise
// changes no bit.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"
#include "heddle/ops/lora_table.h"

#include "expect_error.h"
#include "random.h"

namespace heddle {
namespace {

using testing::expect_invalid;

/// 16 halves that begin at 16 bytes, and more after them.
struct alignas(16) Aligned {
  half values[4096];
};

/// A view of halves whose rows are `stride` elements apart.
ConstTensorView rows(const half* data, int64_t num_rows, int64_t width, int64_t stride) {
  const std::array shape{num_rows, width}, strides{stride, int64_t{1}};
  return {reinterpret_cast<const std::byte*>(data), DType::kFloat16, {}, shape, strides};
}

AdapterTable aligned_table(int64_t features, LoraLayout layout) {
  return {{}, 1, {&features, 1}, 64, DType::kFloat16, layout, LoraAlignment::k16Bytes};
}

TEST(AdapterTableFit, TheViewTellsThePromise) {
  const int64_t features = 8;
  const AdapterTable any({}, 1, {&features, 1}, 8, DType::kFloat16, LoraLayout::kRankMajor);
  EXPECT_FALSE(any.view().is_aligned);
  EXPECT_TRUE(aligned_table(features, LoraLayout::kRankMajor).view().is_aligned);
}

TEST(AdapterTableFit, TakesTheRanksThatFit) {
  const Aligned weights{};
  AdapterTable table = aligned_table(24, LoraLayout::kRankMajor);
  for (int64_t rank = 1; rank <= 64; ++rank) {
    const ConstTensorView weight = rows(weights.values, rank, 24, 24);
    const int64_t unit = rank <= 16 ? 4 : 8;
    if (rank % unit == 0) {
      EXPECT_NO_THROW(table.set({}, 0, 0, weight)) << rank;
      EXPECT_EQ(table.view().weight(0, 0).rank, rank);
    } else {
      const std::string what = "the rank of weight is " + std::to_string(rank) +
                               ", expected a multiple of " + std::to_string(unit);
      expect_invalid({what.c_str(), "fill it up with zeros"}, [&] { table.set({}, 0, 0, weight); });
    }
  }
}

TEST(AdapterTableFit, TellsWhatACopyNeedsToFit) {
  const Aligned weights{};
  AdapterTable table = aligned_table(5, LoraLayout::kRankMinor);
  for (int64_t rank = 1; rank <= 64; ++rank) {
    const int64_t filled = AdapterTable::fitting_rank(rank, LoraAlignment::k16Bytes);
    const int64_t stride =
        AdapterTable::fitting_row_stride(filled, DType::kFloat16, LoraAlignment::k16Bytes);
    EXPECT_NO_THROW(table.set({}, 0, 0, rows(weights.values, 5, filled, stride))) << rank;
    EXPECT_LT(filled - rank, rank <= 16 ? 4 : 8);
    EXPECT_LT(stride - filled, 8);
    EXPECT_EQ(AdapterTable::fitting_rank(rank, LoraAlignment::kNone), rank);
    EXPECT_EQ(AdapterTable::fitting_row_stride(rank, DType::kFloat16, LoraAlignment::kNone), rank);
  }
}

TEST(AdapterTableFit, RefusesRowsAndAddressesThatDoNotFit) {
  const Aligned weights{};
  AdapterTable table = aligned_table(20, LoraLayout::kRankMajor);
  expect_invalid({"weight begins 2 bytes past a multiple of 16", "copy it to a place that fits"},
                 [&] { table.set({}, 0, 0, rows(weights.values + 1, 4, 20, 24)); });
  expect_invalid({"weight.stride(0) is 20 elements, 40 bytes, expected a multiple of 16 bytes"},
                 [&] { table.set({}, 0, 0, rows(weights.values, 4, 20, 20)); });
  expect_invalid({"weight.stride(0) is 8388608, expected at most 4194304"},
                 [&] { table.set({}, 0, 0, rows(weights.values, 4, 20, 8388608)); });
  EXPECT_EQ(table.view().weight(0, 0).data, nullptr);
  EXPECT_NO_THROW(table.set({}, 0, 0, rows(weights.values + 8, 4, 20, 24)));
  AdapterTable minor = aligned_table(6, LoraLayout::kRankMinor);
  expect_invalid({"weight.stride(0) is 12 elements, 24 bytes"},
                 [&] { minor.set({}, 0, 0, rows(weights.values, 6, 12, 12)); });
  EXPECT_NO_THROW(minor.set({}, 0, 0, rows(weights.values, 6, 12, 16)));
}

TEST(AdapterTableFit, ARankFilledUpWithZerosHasTheSameBits) {
  constexpr int64_t kRank = 6, kFilled = 8, kIn = 16, kOut = 5;
  Aligned a{}, b{};
  const auto values = testing::random_normal<half>(kRank * kIn + kOut * kRank);
  for (int64_t i = 0; i < kRank * kIn; ++i) a.values[i] = values[size_t(i)];
  for (int64_t i = 0; i < kOut * kRank; ++i) {
    b.values[i / kRank * kFilled + i % kRank] = values[size_t(kRank * kIn + i)];
  }
  const int64_t in = kIn, out = kOut;
  AdapterTable a_general({}, 1, {&in, 1}, 8, DType::kFloat16, LoraLayout::kRankMajor);
  AdapterTable b_general({}, 1, {&out, 1}, 8, DType::kFloat16, LoraLayout::kRankMinor);
  AdapterTable a_fits = aligned_table(in, LoraLayout::kRankMajor);
  AdapterTable b_fits = aligned_table(out, LoraLayout::kRankMinor);
  a_general.set({}, 0, 0, rows(a.values, kRank, kIn, kIn));
  b_general.set({}, 0, 0, rows(b.values, kOut, kRank, kFilled));
  a_fits.set({}, 0, 0, rows(a.values, kFilled, kIn, kIn));
  b_fits.set({}, 0, 0, rows(b.values, kOut, kFilled, kFilled));

  const auto x = testing::random_normal<float>(kIn);
  const std::vector<int32_t> ids{0};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {1}));
  std::vector<float> y(kOut, 1.0f), y_filled(kOut, 1.0f), h(kFilled);
  const auto add = [&](std::vector<float>& to, const AdapterTable& a_table,
                       const AdapterTable& b_table, int64_t rank) {
    lora_shrink({}, host_view(h.data(), {1, rank}), host_view(x.data(), {1, kIn}), a_table.view(),
                0, batch);
    lora_expand({}, host_view(to.data(), {1, kOut}), host_view(h.data(), {1, rank}), b_table.view(),
                0, kOut, batch);
  };
  add(y, a_general, b_general, kRank);
  add(y_filled, a_fits, b_fits, kFilled);
  EXPECT_EQ(y, y_filled);
  EXPECT_NE(y, std::vector<float>(kOut, 1.0f));
}

}  // namespace
}  // namespace heddle
