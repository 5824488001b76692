// How a launch for packed weights shares features, without a GPU. It says in what order they are
// summed: a change here changes bits.
#include <gtest/gtest.h>

#include "ops/linear_site/packed/packed_shape.h"

namespace heddle::cuda::linear_site {
namespace {

TEST(SelectPacked, OutputsOfATileGoByTheFormat) {
  for (const WeightType type : {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ4K}) {
    EXPECT_EQ(PackedShape(type).tile_outputs, 256) << type;
  }
  for (const WeightType type : {WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ5K,
                                WeightType::kQ6K, WeightType::kQ8_0}) {
    EXPECT_EQ(PackedShape(type).tile_outputs, 128) << type;
  }
}

TEST(SelectPacked, ClustersGoByTheTilesAndTheStages) {
  struct Row {
    int64_t num_tiles, in_features;
    int size;
  };
  constexpr Row kRows[] = {
      // Each block has a stage of 256 features at least.
      {1, 32, 1},
      {1, 256, 1},
      {1, 257, 2},
      {1, 768, 2},
      {1, 769, 4},
      {1, 1792, 4},
      {1, 1793, 8},
      {1, 1 << 20, 8},
      // No more blocks than 120 or so.
      {15, 4096, 8},
      {29, 4096, 8},
      {30, 4096, 4},
      {59, 4096, 4},
      {60, 4096, 2},
      {119, 4096, 2},
      {120, 4096, 1},
      {2004, 4096, 1},
      // Both.
      {29, 1024, 4},
      {59, 512, 2},
  };
  for (const auto& [num_tiles, in_features, size] : kRows) {
    EXPECT_EQ(packed_cluster_size(num_tiles, in_features), size)
        << num_tiles << " tiles, " << in_features << " features";
  }
}

}  // namespace
}  // namespace heddle::cuda::linear_site
