#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/divide.h"

#include "core/math.h"
#include "ops/lora_device/sums.h"

namespace heddle::cuda::lora {

/// Up to 16 rows of one adapter. An adapter of rank 40 needs three rank tiles for them, which are
/// the tiles [first_tile, first_tile + num_tiles) of the plan.
struct RowTile {
  int32_t slot;
  int16_t num_rows, num_tiles;
  int32_t first_tile;
  Reciprocal row_reciprocal;  // of num_rows
  int32_t first_partial;  // row of the partial sums: the rows of all rank tiles before, added up
  int32_t padding[3];
  int16_t rows[kRowTileRows];
};

/// 16 ranks of an adapter for the rows of one row tile: what a work item of shrink computes.
struct RankTile {
  int32_t slot;
  int16_t num_rows, tile;  // ranks [16 tile, 16 tile + 16)
  int32_t first_partial;   // as in RowTile
  int32_t padding;
  int16_t rows[kRowTileRows];  // of the row tile
};
static_assert(sizeof(RowTile) == 64 && sizeof(RankTile) == 48);

/// How the rows of a window (up to 256) are grouped by adapter. plan_windows writes it once a step,
/// and the launches of all sites read it. Example: five rows with slots 3 7 3 - 7 become two row
/// tiles, {slot 3, rows 0 2} and {slot 7, rows 1 4}; row 3 has no adapter and is in neither.
struct WindowPlan {
  int32_t num_row_tiles, num_tiles, num_partials;
  uint32_t tag;  // of the batch, see plan_tag(); bit 0: row tiles differ in num_tiles
  RowTile row_tiles[kWindowRows];
  RankTile tiles[1];  // in memory [rows of the window * rank tiles of max_rank]
};

/// The lowest bit of a tag is the plan's own.
inline constexpr uint32_t kMixedBit = 1;

/// Bytes of one window's plan.
[[nodiscard]] constexpr size_t window_plan_bytes(int64_t rows, int64_t max_rank) {
  const int64_t tiles = rows * ceil_div(max_rank, kTileRanks);
  return round_up(offsetof(WindowPlan, tiles) + size_t(tiles) * sizeof(RankTile), size_t{256});
}

}  // namespace heddle::cuda::lora
