// How a launch for packed weights shares features, without a GPU. It says in what order they are
// summed: a change here changes bits.
#include <algorithm>

#include <gtest/gtest.h>

#include "ops/linear_site/packed/packed_division.h"
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

TEST(SelectPacked, PartsGoByTheTilesAndTheStages) {
  struct Row {
    int64_t num_tiles, num_stages;
    int parts;
  };
  constexpr Row kRows[] = {
      // As many stages as parts at least.
      {1, 1, 1},
      {1, 3, 2},
      {1, 8, 8},
      {1, 1 << 20, 8},
      // No more warpgroups than four on each of 132 multiprocessors.
      {64, 16, 8},
      {66, 16, 8},
      {67, 16, 4},
      {96, 16, 4},
      {264, 16, 2},
      {265, 16, 1},
      {448, 16, 1},
      {4008, 16, 1},
  };
  for (const auto& [num_tiles, num_stages, parts] : kRows) {
    EXPECT_EQ(packed_parts(num_tiles, num_stages), parts)
        << num_tiles << " tiles, " << num_stages << " stages";
  }
}

TEST(SelectPacked, ADivisionFitsAndTakesAllOnce) {
  constexpr int kShared = 227 * 1024;
  for (const WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
        WeightType::kQ5_1, WeightType::kQ4K, WeightType::kQ5K, WeightType::kQ6K}) {
    for (const int64_t groups : {1, 4, 5, 63, 256, 384, 1792, 8016}) {
      for (const int64_t in : {256, 768, 4096, 14336}) {
        const int parts = packed_division(type, groups, in, 1, 132, kShared).parts;
        for (const int rows : {1, 8, 9, 32, 33, 64, 65, 128, 300}) {
          const PackedDivision d = packed_division(type, groups, in, rows, 132, kShared);
          EXPECT_EQ(d.parts, parts);  // whatever the rows
          EXPECT_EQ(d.block_parts * d.cluster_size, d.parts);
          EXPECT_EQ(1 << d.part_bits, d.block_parts);
          EXPECT_LE(d.warps(), 16);
          EXPECT_LE(d.shared_bytes, kShared);
          EXPECT_GE(d.ring, 2);
          EXPECT_GE(d.row_blocks * d.block_rows, rows);
          EXPECT_LT((d.row_blocks - 1) * d.block_rows, rows);
          EXPECT_GE(1 << d.row_bits, std::min(rows, d.block_rows));
          const int64_t tiles = d.num_blocks / d.cluster_size / d.row_blocks;
          EXPECT_GE(tiles * d.block_tiles * kTileGroups, groups);
          EXPECT_LT((tiles - 1) * d.block_tiles * kTileGroups, groups);
          const int64_t stages = d.num_phases * d.phase_stages * d.parts;
          EXPECT_GE(stages * StageShape(type).features, in);
          EXPECT_EQ(d.x_at % 1024, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::cuda::linear_site
