#pragma once

#include <cstddef>
#include <cstdint>

#include "core/math.h"

namespace heddle::cuda::lora {

inline constexpr int kGroupedTileRows = 128;
// Row tiles of a batch of fewer than 512 rows have 32, up to 4096 rows 64: all multiprocessors
// shall have some.
inline constexpr int kFewRows = 511, kGroupedTileFewRows = 32;
inline constexpr int kSomeRows = 4096, kGroupedTileSomeRows = 64;
inline constexpr int kPlanSlots = 512;           // slots whose rows the plan counts at a time
inline constexpr int64_t kShortBatchRows = 256;  // longer ones are grouped

/// Rows of a row tile, in a batch that has num_rows rows with an adapter. The last row tile of an
/// adapter may have fewer.
[[nodiscard]] constexpr int rows_of_tile(int num_rows) {
  return num_rows <= kFewRows    ? kGroupedTileFewRows
         : num_rows <= kSomeRows ? kGroupedTileSomeRows
                                 : kGroupedTileRows;
}

/// Up to 128 rows of one adapter: rows[first + i] of the plan for i < num_rows.
struct GroupedTile {
  int32_t slot, first, num_rows;
  int32_t num_rank_tiles;  // of the adapter, from slot_ranks of lora_plan
};

/// Begins the plan of a batch. Behind it come three arrays with a place for each row of the batch:
///   GroupedTile tiles[]   the row tiles
///   int32_t rows[]        the rows in the order of their adapters, the plan's order
///   int32_t slots[]       the slot of each row, for the plan kernel alone
struct alignas(16) GroupedPlan {
  int32_t num_tiles, num_rows;
  uint32_t tag;  // of the batch
};
inline constexpr size_t kGroupedPlanHead = 256;

[[nodiscard]] constexpr size_t grouped_plan_bytes(int64_t num_tokens) {
  const size_t of_row = sizeof(GroupedTile) + 2 * sizeof(int32_t);
  return round_up(kGroupedPlanHead + size_t(num_tokens) * of_row, size_t{256});
}

/// The plan as kernels read it.
struct GroupedRows {
  const GroupedPlan* head;
  const GroupedTile* tiles;  // [num_tiles]
  const int32_t* rows;       // [num_rows]
};
[[nodiscard]] inline GroupedRows grouped_rows(const std::byte* plan, int64_t num_tokens) {
  const auto* tiles = reinterpret_cast<const GroupedTile*>(plan + kGroupedPlanHead);
  return {reinterpret_cast<const GroupedPlan*>(plan), tiles,
          reinterpret_cast<const int32_t*>(tiles + num_tokens)};
}

}  // namespace heddle::cuda::lora
