#pragma once

#include <algorithm>
#include <cstdint>

#include "core/math.h"
#include "ops/linear/packed_layout.h"

// The shape of a launch for packed weights: numbers alone.

namespace heddle::cuda::linear_site {

inline constexpr int kPackedWarps = 8, kPackedThreads = 32 * kPackedWarps;
inline constexpr int kPackedStages = 2;           // of weights and x in shared memory
inline constexpr int kPackedStageFeatures = 256;  // of a stage: the largest block
inline constexpr int kPackedStepFeatures = 32;    // of two products
inline constexpr int kPackedRowTile = 16;         // rows that are multiplied at once
inline constexpr int kPackedRows = 32;            // of a launch
inline constexpr int kMaxPackedCluster = 8;

/// What a block of a launch has in shared memory, for weights of one format.
struct PackedShape {
  constexpr explicit PackedShape(WeightType type) {
    const BlockFormat format = block_format(type);
    warp_groups = format.code_bits == 4 ? 2 : 1;
    tile_outputs = kPackedWarps * warp_groups * PackedLayout::kGroup;
    group_stage_bytes = kPackedStageFeatures / format.block_size * PackedLayout(type).block_bytes;
    // Rows of x begin so far apart that a warp's loads of them use all banks.
    const int gap = format.code_bits == 8 ? 16 : format.code_bits == 6 ? 32 : 64;
    x_row_bytes = kPackedStageFeatures * 2 + gap;
    x_sum_bytes = format.has_min ? 8 : 0;
    sum_stride = tile_outputs + 4;
  }

  int warp_groups;        // of 16 outputs, of a warp
  int tile_outputs;       // of a block
  int group_stage_bytes;  // of the weights of a group
  int x_row_bytes;
  int x_sum_bytes;  // of a row and 32 features
  int sum_stride;   // floats from row to row of the finished sums, which lie where stages were

  [[nodiscard]] constexpr int weight_stage_bytes() const {
    return kPackedWarps * warp_groups * group_stage_bytes;
  }
  /// Offsets of the parts of the shared memory for so many rows, a multiple of kPackedRowTile.
  [[nodiscard]] constexpr int x(int stage, int rows) const {
    return kPackedStages * weight_stage_bytes() + stage * rows * x_row_bytes;
  }
  /// The sums of x of the stage that is multiplied.
  [[nodiscard]] constexpr int x_sums(int rows) const { return x(kPackedStages, rows); }
  [[nodiscard]] constexpr int bytes(int rows) const {
    const int steps = kPackedStageFeatures / kPackedStepFeatures;
    return std::max(x_sums(rows) + steps * rows * x_sum_bytes,
                    rows * sum_stride * int{sizeof(float)});
  }
};

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
