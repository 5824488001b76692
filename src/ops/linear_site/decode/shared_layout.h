#pragma once

#include <cstdint>

#include "cuda/sm90/swizzled_rows.h"

#include "core/math.h"
#include "ops/lora_device/sums.h"

namespace heddle::cuda::linear_site {

inline constexpr int kMaxSlices = 4;     // of one launch
inline constexpr int kBoxFeatures = 64;  // features of a box: kSwizzledRowBytes
inline constexpr int kGroupRows = 64;    // rows of x that a warpgroup multiplies
inline constexpr int kMaxStages = 12;    // of either ring
inline constexpr int kMaxClusterSize = 4;
// One warp asks for weights, one for x. With those for adapters they are two warpgroups: a block
// is whole warpgroups, or the compiler makes traps of their products.
inline constexpr int kProducerWarps = 2, kLoraWarps = 6;
// Floats from row to row of a piece of 64 outputs on its way to y.
inline constexpr int kOutputRowStride = 64 + 4;

// Pieces of B, 1024 elements each, of which each warp for adapters has a few on their way.
inline constexpr int kExpandStageBytes = 2048, kMaxAdapterStages = 2;

/// Threads of a block whose rows of x are so many warpgroups'.
[[nodiscard]] constexpr int block_threads(int groups) {
  return 128 * groups + 32 * (kProducerWarps + kLoraWarps);
}

/// Steps of 16 ranks that h of a row has room for: products take 32 where there are more than 16.
[[nodiscard]] constexpr int h_steps(int max_rank) {
  return max_rank <= 16 ? 1 : ceil_div(max_rank, 32) * 2;
}

/// Pieces that a warp has on their way: one where it has few, even if each row has an adapter of
/// its own.
[[nodiscard]] constexpr int adapter_stages(int num_rows, int columns, int max_rank) {
  const int of_row =
      max_rank <= 16 ? ceil_div(columns, 64) : ceil_div(columns, 32) * ceil_div(max_rank, 32);
  const int of_warp = num_rows * of_row / kLoraWarps;
  return max_rank == 0 ? 0 : of_warp < 2 ? 1 : kMaxAdapterStages;
}

/// Whether all warps of a block finish its last tile: where it has a part of the sums, or few rows,
/// which are those of two warps.
[[nodiscard]] constexpr bool shares_last_tile(int cluster_size, int num_rows) {
  return cluster_size > 1 || num_rows <= 32;
}

/// What sizes a block's shared memory.
struct SharedShape {
  int tile_outputs, groups, cluster_size, num_rows, max_rank;
  int stage_boxes = 0, weight_stages = 0, x_stages = 0;
};

inline constexpr uint32_t kSharedBarrierBytes = (4 * kMaxStages + 3) * 8 + 56;

/// Rows of a box of x. Products read 64 at a time: behind these whatever lies there.
[[nodiscard]] constexpr int x_box_rows(int num_rows) { return round_up(num_rows, 8); }

/// Where its parts lie, in bytes. Some take turns:
///
///   rings of weights and x    then the block's part of the sums of its last tile
///   ring of B                 then y's piece
struct SharedLayout {
  uint32_t x, barriers, factors, row_tiles, partial_rows, h, delta, ring, piece, bytes;
  uint32_t delta_stride;  // floats from row to row
  int num_adapter_stages;

  constexpr explicit SharedLayout(const SharedShape& p) {
    x = uint32_t(p.weight_stages * p.stage_boxes * p.tile_outputs) * kSwizzledRowBytes;
    const int box_rows = x_box_rows(p.num_rows);
    const uint32_t rings = x + uint32_t(p.x_stages * p.stage_boxes * box_rows) * kSwizzledRowBytes;
    const auto product_rows = uint32_t(round_up(p.num_rows, 16));
    const uint32_t parts = shares_last_tile(p.cluster_size, p.num_rows)
                               ? product_rows * uint32_t(p.tile_outputs + 4) * 4
                               : 0;
    barriers = max(rings, parts);
    factors = barriers + kSharedBarrierBytes;
    row_tiles = factors + uint32_t(p.num_rows) * 8;
    const bool has_adapters = p.max_rank > 0;
    const auto rows = uint32_t(has_adapters ? p.num_rows : 0);
    partial_rows = row_tiles + rows * 40;
    h = round_up(partial_rows + rows * uint32_t(ceil_div(p.max_rank, lora::kTileRanks)) * 4, 16u);
    delta = h + rows * uint32_t(h_steps(p.max_rank)) * 64;
    // Of the columns that the block finishes. Four more than a multiple of 16, so that the rows of
    // a product lie in different banks.
    const int columns = ceil_div(p.tile_outputs / 8, p.cluster_size) * 8;
    delta_stride = uint32_t(round_up(columns, 32)) + 4;
    ring = piece = delta + rows * delta_stride * 4;
    num_adapter_stages = adapter_stages(p.num_rows, columns, p.max_rank);
    const uint32_t ends[] = {
        ring + uint32_t(kLoraWarps * num_adapter_stages * kExpandStageBytes),
        piece + (p.cluster_size == 1 ? product_rows * kOutputRowStride * 4 : 0),
        rings + uint32_t(p.groups * kGroupRows - box_rows) * kSwizzledRowBytes};
    bytes = 0;
    for (const uint32_t end : ends) bytes = max(bytes, end);
  }

 private:
  // A reference to a constant, as std::max takes it, does not exist on the device.
  [[nodiscard]] static constexpr uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
};

}  // namespace heddle::cuda::linear_site
