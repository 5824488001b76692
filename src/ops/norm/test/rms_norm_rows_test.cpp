#include "ops/norm/rms_norm_rows.h"

#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle {
namespace {

using Sizes = std::vector<int64_t>;

ConstTensorView tensor(const Sizes& shape, const Sizes& strides, DType dtype = DType::kFloat16) {
  static const std::byte byte{};
  return {&byte, dtype, {}, shape, strides};
}

TEST(RmsNormRows, NeighboursThatEveryTensorCountsAsOneAreOne) {
  const ConstTensorView dense = tensor({2, 3, 1, 5, 8}, {120, 40, 7, 8, 1});
  RowAxes axes = merge_row_axes({dense, {}, dense});
  EXPECT_EQ(axes.num_axes, 1);
  EXPECT_EQ(axes.sizes[0], 30);
  EXPECT_EQ(axes.strides[0], (PerRowTensor<int64_t>{16, 0, 16}));

  // The input has a gap after each group of 5 rows, the f32 residual none.
  const ConstTensorView gaps = tensor({2, 3, 1, 5, 8}, {144, 48, 9, 8, 1});
  const ConstTensorView wide = tensor({2, 3, 1, 5, 8}, {120, 40, 7, 8, 1}, DType::kFloat32);
  axes = merge_row_axes({dense, wide, gaps});
  EXPECT_EQ(axes.num_axes, 2);
  EXPECT_EQ(axes.sizes[0], 6);
  EXPECT_EQ(axes.sizes[1], 5);
  EXPECT_EQ(axes.strides[0], (PerRowTensor<int64_t>{80, 160, 96}));
  EXPECT_EQ(axes.strides[1], (PerRowTensor<int64_t>{16, 32, 16}));

  EXPECT_EQ(merge_row_axes({tensor({8}, {1}), {}, tensor({8}, {1})}), RowAxes{});
}

/// first_row, bytes of the input and number of rows of each block.
std::vector<Sizes> blocks_of(const RowAxes& axes, int64_t max_rows) {
  std::vector<Sizes> blocks;
  for_each_row_block(axes, max_rows, [&](const RowBlock& b) {
    blocks.push_back({b.first_row, b.offsets[2], int64_t{b.sizes[0]} * b.sizes[1] * b.sizes[2]});
  });
  return blocks;
}

TEST(RmsNormRows, AxesThatDoNotFitIntoABlockAreWalked) {
  const ConstTensorView t = tensor({2, 3, 4, 5, 8}, {1000, 210, 50, 9, 1});
  const RowAxes axes = merge_row_axes({t, {}, t});
  ASSERT_EQ(axes.num_axes, 4);
  EXPECT_EQ(blocks_of(axes, 1000), (std::vector<Sizes>{{0, 0, 60}, {60, 2000, 60}}));
  EXPECT_EQ(blocks_of(axes, 59), (std::vector<Sizes>{{0, 0, 20},
                                                     {20, 420, 20},
                                                     {40, 840, 20},
                                                     {60, 2000, 20},
                                                     {80, 2420, 20},
                                                     {100, 2840, 20}}));
  EXPECT_EQ(blocks_of(RowAxes{}, 1), (std::vector<Sizes>{{0, 0, 1}}));
  testing::expect_error(ErrorCode::kUnsupported, {"input has 5 rows, at most 4 are supported"},
                        [&] { blocks_of(axes, 4); });
}

}  // namespace
}  // namespace heddle
