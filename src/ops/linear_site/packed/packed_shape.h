#pragma once

#include <algorithm>
#include <cstdint>

#include "core/math.h"
#include "ops/linear/format/packed_layout.h"

// The shape of a launch for packed weights: numbers alone.

namespace heddle::cuda::linear_site {

inline constexpr int kPackedWarps = 8, kPackedThreads = 32 * kPackedWarps;
inline constexpr int kPackedStages = 2;           // of weights in shared memory
inline constexpr int kPackedStageFeatures = 256;  // of a stage: the largest block
inline constexpr int kPackedStepFeatures = 32;    // of two products
inline constexpr int kPackedStageSteps = kPackedStageFeatures / kPackedStepFeatures;
inline constexpr int kPackedRowTile = 8;   // rows of a product
inline constexpr int kPackedRowTiles = 4;  // of a launch
inline constexpr int kPackedRows = kPackedRowTiles * kPackedRowTile;
inline constexpr int kMaxPackedCluster = 8;

[[nodiscard]] constexpr int packed_row_tiles(int rows) {
  return (rows + kPackedRowTile - 1) / kPackedRowTile;
}

/// What a block of a launch has in shared memory, for weights of one format.
struct PackedShape {
  constexpr explicit PackedShape(WeightType type) {
    const BlockFormat format = block_format(type);
    warp_groups = format.code_bits == 4 ? 2 : 1;
    tile_outputs = kPackedWarps * warp_groups * PackedLayout::kGroup;
    group_stage_bytes = kPackedStageFeatures / format.block_size * PackedLayout(type).block_bytes;
    x_shift = format.code_bits == 8 ? 16 : format.code_bits == 6 ? 32 : 64;
    x_sum_bytes = format.has_min ? 8 : 0;
    sum_stride = tile_outputs + 4;
  }
  static constexpr int kXRowBytes = kPackedStageFeatures * 2;

  int warp_groups;        // of 16 outputs, of a warp
  int tile_outputs;       // of a block
  int group_stage_bytes;  // of the weights of a group
  int x_shift;            // from row to row of x, see place_in_row()
  int x_sum_bytes;        // of a row and 32 features
  int sum_stride;  // floats from row to row of the finished sums, which lie where stages were

  /// Where byte `at` of a row of x lies in it: a warp's loads of rows use all banks.
  [[nodiscard]] constexpr int place_in_row(int row, int at) const {
    return at ^ (row * x_shift) % 128;
  }
  [[nodiscard]] constexpr int weight_stage_bytes() const {
    return kPackedWarps * warp_groups * group_stage_bytes;
  }
  /// Stages of x. Few rows have room for more, so that one barrier a stage is enough.
  [[nodiscard]] static constexpr int x_stages(int row_tiles) { return row_tiles == 1 ? 4 : 2; }
  /// Offsets of the parts of the shared memory for so many row tiles.
  [[nodiscard]] constexpr int x(int stage, int row_tiles) const {
    return kPackedStages * weight_stage_bytes() +
           stage % x_stages(row_tiles) * row_tiles * kPackedRowTile * kXRowBytes;
  }
  /// The sums of x of a stage, and of the next one.
  [[nodiscard]] constexpr int x_sums(int stage, int row_tiles) const {
    return x(0, row_tiles) + (x_stages(row_tiles) * kXRowBytes + stage % 2 * sums_of_row()) *
                                 row_tiles * kPackedRowTile;
  }
  [[nodiscard]] constexpr int bytes(int row_tiles) const {
    const int rows = row_tiles * kPackedRowTile;
    return std::max(x_sums(1, row_tiles) + rows * sums_of_row(),
                    rows * sum_stride * int{sizeof(float)});
  }

 private:
  [[nodiscard]] constexpr int sums_of_row() const { return kPackedStageSteps * x_sum_bytes; }
};

/// Row tiles of a launch in this much shared memory.
[[nodiscard]] constexpr int packed_row_tiles_in(const PackedShape& shape, int shared_bytes) {
  int tiles = 1;
  while (tiles < kPackedRowTiles && shape.bytes(tiles + 1) <= shared_bytes) ++tiles;
  return tiles;
}

/// Blocks of a cluster, which share the features of a tile: of the shape of a launch's weights
/// alone, since it says in what order features are summed.
[[nodiscard]] constexpr int packed_cluster_size(int64_t num_tiles, int64_t in_features) {
  constexpr int64_t kEnoughBlocks = 120;
  const int64_t stages = ceil_div(in_features, int64_t{kPackedStageFeatures});
  int size = 1;
  while (size < kMaxPackedCluster && num_tiles * size < kEnoughBlocks && 2 * size <= stages) {
    size *= 2;
  }
  return size;
}

}  // namespace heddle::cuda::linear_site
