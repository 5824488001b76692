#pragma once

#include <cstdint>

#include "heddle/ops/lora.h"

namespace heddle {

/// Rows are taken in windows of this many, so that their groups fit the stack.
inline constexpr int kWindowRows = 256;
/// Rows of one adapter that share each load of its weights.
inline constexpr int kTileRows = 8;

/// Rows of one slot: rows[first], ..., rows[first + count - 1] of the groups.
struct GroupTile {
  int32_t slot;
  int16_t first, count;
};

/// The rows of a window that have an adapter, grouped by it. Within a slot, rows keep their order.
struct RowGroups {
  int num_tiles = 0;
  uint16_t rows[kWindowRows];  // counted from the window's first row
  GroupTile tiles[kWindowRows];
};

/// Groups the rows [first_row, first_row + num_rows) of the batch; num_rows <= kWindowRows.
void group_rows(const LoraBatch& batch, int64_t first_row, int num_rows, int64_t num_slots,
                RowGroups& groups);

}  // namespace heddle
