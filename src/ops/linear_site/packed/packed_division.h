#pragma once

#include <algorithm>
#include <cstdint>

#include "core/math.h"
#include "ops/linear/format/packed_layout.h"

// How the kernel of compute capability 9.0 for packed weights divides a launch: numbers alone.

namespace heddle::cuda::linear_site {

inline constexpr int kTileGroups = 4;     // of 16 outputs: a warpgroup's tile
inline constexpr int kMaxWarpgroups = 4;  // of a block
inline constexpr int kMaxPartRows = 64;   // of a block
inline constexpr int kMaxParts = 8;       // of the features of an output
inline constexpr int kPartStepFeatures = 32;

/// Whether that kernel takes weights of a format. Q6_K has a scale for each product of 16 features,
/// and was ten times slower there than in the kernel of other chips.
[[nodiscard]] constexpr bool has_packed_tiles(WeightType type) { return type != WeightType::kQ6K; }

/// A warp's stages of weights of a format.
struct StageShape {
  constexpr explicit StageShape(WeightType type) {
    const BlockFormat format = block_format(type);
    features = format.code_bits == 8 ? 128 : 256;
    weight_bytes = features / format.block_size * PackedLayout(type).block_bytes;
    x_row_bytes = features * 2;
    x_sum_bytes = format.has_min ? 8 * features / kPartStepFeatures : 0;
  }
  int features;
  int weight_bytes;              // of a group
  int x_row_bytes, x_sum_bytes;  // of a row
};

/// How a launch is divided. The features of a tile are divided into parts, of which a warpgroup has
/// one: stage i belongs to part i % parts. A block has some parts of each of its tiles, and blocks
/// of a cluster have all of them.
struct PackedDivision {
  int parts = 1;  // says in what order features are summed
  int cluster_size = 1, block_parts = 1, block_tiles = 1;
  int block_rows = 8, row_blocks = 1;  // blocks of other rows have the same tiles
  int num_blocks = 0;                  // of all rows
  int part_bits = 0, row_bits = 0;     // 2^n are block_parts, and no fewer than a block's rows
  int ring = 2;                        // stages of weights in shared memory
  int phase_stages = 1;  // of each part, whose x is in shared memory together: a phase
  int num_phases = 1, x_slots = 1;
  int x_at = 0, x_slot_bytes = 0, x_sums_at = 0, x_sum_slot_bytes = 0, barriers_at = 0;
  int sum_stride = 0;  // floats from row to row of the finished sums, which lie where stages were
  int shared_bytes = 0;

  [[nodiscard]] constexpr int warps() const { return block_parts * block_tiles * kTileGroups; }
  /// Where things lie in shared memory.
  constexpr void lay_out(const StageShape& stage) {
    const int rows = phase_stages * block_parts * block_rows;
    x_at = round_up(ring * warps() * stage.weight_bytes, 1024);
    x_slot_bytes = rows * stage.x_row_bytes;
    x_sums_at = x_at + x_slots * x_slot_bytes;
    x_sum_slot_bytes = rows * stage.x_sum_bytes;
    barriers_at = x_sums_at + x_slots * x_sum_slot_bytes;
    sum_stride = block_tiles * kTileGroups * PackedLayout::kGroup + 4;
    shared_bytes = std::max(barriers_at + ring * warps() * 8,
                            block_parts * block_rows * sum_stride * int{sizeof(float)});
  }
};

/// Parts that features are divided into: of the shape of a launch's weights alone.
[[nodiscard]] constexpr int packed_parts(int64_t num_tiles, int64_t num_stages) {
  constexpr int64_t kWarpgroups = 132 * kMaxWarpgroups;  // that a large chip has room for
  int parts = 1;
  while (parts < kMaxParts && num_tiles * parts * 2 <= kWarpgroups && 2 * parts <= num_stages) {
    parts *= 2;
  }
  return parts;
}

/// The division of a launch; nothing of it but `parts` changes a bit.
[[nodiscard]] constexpr PackedDivision packed_division(WeightType type, int64_t num_groups,
                                                       int64_t in_features, int num_rows,
                                                       int num_sms, int shared_bytes) {
  const StageShape stage(type);
  const int64_t tiles = ceil_div(num_groups, int64_t{kTileGroups});
  const int64_t stages = ceil_div(in_features, int64_t{stage.features});
  PackedDivision d;
  d.parts = packed_parts(tiles, stages);
  d.cluster_size = std::min(d.parts, 2);
  d.block_parts = d.parts / d.cluster_size;
  d.block_tiles = int(std::clamp<int64_t>(ceil_div(tiles * d.cluster_size, int64_t{num_sms}), 1,
                                          kMaxWarpgroups / d.block_parts));
  const int part_stages = int(ceil_div(stages, int64_t{d.parts}));
  d.block_rows = 8;
  while (d.block_rows < std::min(num_rows, kMaxPartRows)) d.block_rows *= 2;
  const auto fits = [&] {
    int phase = 1;
    while (phase < part_stages) phase *= 2;
    for (; phase >= 1; phase /= 2) {
      for (d.ring = 4; d.ring >= 2; --d.ring) {
        d.phase_stages = phase;
        d.num_phases = ceil_div(part_stages, phase);
        d.x_slots = std::min(d.num_phases, 2);
        d.lay_out(stage);
        if (d.shared_bytes <= shared_bytes) return true;
      }
    }
    d.ring = 2, d.x_slots = 1, d.phase_stages = 1, d.num_phases = part_stages;
    d.lay_out(stage);
    return d.shared_bytes <= shared_bytes;
  };
  while (!fits()) d.block_rows /= 2;
  while (1 << d.part_bits < d.block_parts) ++d.part_bits;
  while (1 << d.row_bits < std::min(num_rows, d.block_rows)) ++d.row_bits;
  d.row_blocks = ceil_div(num_rows, d.block_rows);
  d.num_blocks = int(ceil_div(tiles, int64_t{d.block_tiles})) * d.cluster_size * d.row_blocks;
  return d;
}

}  // namespace heddle::cuda::linear_site
