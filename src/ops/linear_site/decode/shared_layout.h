#pragma once

#include <cstdint>

#include "cuda/sm90/swizzled_rows.h"

#include "core/math.h"
#include "ops/lora/device/params.h"

namespace heddle::cuda::linear_site {

inline constexpr int kMaxSlices = 4;     // of one launch
inline constexpr int kBoxFeatures = 64;  // features of a box: kSwizzledRowBytes
inline constexpr int kGroupRows = 64;    // rows of x that a warpgroup multiplies
inline constexpr int kMaxStages = 12;    // of either ring
inline constexpr int kMaxClusterSize = 4;
inline constexpr int kLoraWarps = 6;
inline constexpr int kProducerWarps = 2;
// Floats from row to row of a piece of 64 outputs on its way to y.
inline constexpr int kOutputRowStride = 64 + 4;

/// Threads of a block whose rows of x are so many warpgroups'.
[[nodiscard]] constexpr int block_threads(int groups) {
  return 128 * groups + 32 * (kProducerWarps + kLoraWarps);
}

/// Steps of 16 ranks that h of a row has room for: products take 32 where there are more than 16.
[[nodiscard]] constexpr int h_steps(int max_rank) {
  return max_rank <= 16 ? 1 : ceil_div(max_rank, 32) * 2;
}

/// What sizes a block's shared memory.
struct SharedShape {
  int tile_outputs, groups, cluster_size, num_rows, max_rank;
  int stage_boxes = 0, weight_stages = 0, x_stages = 0;
};

/// Where its parts lie, in bytes.
struct SharedLayout {
  uint32_t x, barriers, factors, piece, row_tiles, partial_rows, h, delta, bytes;
  uint32_t delta_stride;  // floats from row to row

  constexpr explicit SharedLayout(const SharedShape& p) {
    const auto rows_of_groups = uint32_t(p.groups * kGroupRows);
    x = uint32_t(p.weight_stages * p.stage_boxes * p.tile_outputs) * kSwizzledRowBytes;
    barriers = x + uint32_t(p.x_stages * p.stage_boxes) * rows_of_groups * kSwizzledRowBytes;
    factors = barriers + (4 * kMaxStages + 4) * 8;
    piece = factors + rows_of_groups * 8;
    row_tiles = piece + (p.cluster_size == 1 ? rows_of_groups * kOutputRowStride * 4 : 0);
    const auto rows = uint32_t(p.max_rank > 0 ? p.num_rows : 0);
    partial_rows = row_tiles + rows * 40;
    h = round_up(partial_rows + rows * uint32_t(ceil_div(p.max_rank, lora::kTileRanks)) * 4, 16u);
    delta = h + rows * uint32_t(h_steps(p.max_rank)) * 64;
    // Of the columns that the block finishes. Four more than a multiple of 16, so that the rows of
    // a product lie in different banks.
    const int columns = round_up(ceil_div(p.tile_outputs / 8, p.cluster_size) * 8, 32);
    delta_stride = uint32_t(columns) + 4;
    bytes = delta + rows * delta_stride * 4;
  }
};

}  // namespace heddle::cuda::linear_site
