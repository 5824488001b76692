#include "ops/lora_device/cpu/row_groups.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "cpu/index_array.h"
#include "ops/lora_device/checks/segment_ends.h"

namespace heddle {
namespace {

// The batch travels to other devices as it is.
static_assert(std::is_trivially_copyable_v<LoraBatch>);

int32_t valid_slot(int64_t slot, int64_t num_slots) {
  return slot >= 0 && slot < num_slots ? static_cast<int32_t>(slot) : kNoAdapter;
}

using Slots = std::array<int32_t, kWindowRows>;

/// The slot of each row of the window, kNoAdapter where it has none.
void resolve_slots(const LoraBatch& batch, int64_t first_row, int num_rows, int64_t num_slots,
                   Slots& slots) {
  if (batch.slot_ids) {
    const cpu::IndexArray ids(batch.slot_ids);
    for (int i = 0; i < num_rows; ++i) {
      slots[size_t(i)] = valid_slot(ids[first_row + i], num_slots);
    }
    return;
  }
  std::fill_n(slots.begin(), num_rows, kNoAdapter);
  const cpu::IndexArray starts(batch.seg_starts), ids(batch.seg_slots);
  const SegmentEnds ends(batch);
  for (int64_t s = 0; s < batch.seg_starts.size(0); ++s) {
    const int64_t begin = std::max(starts[s], first_row) - first_row;
    const int64_t end = std::min(ends[s], first_row + num_rows) - first_row;
    if (begin < end) {
      std::fill(slots.begin() + begin, slots.begin() + end,
                valid_slot(batch.seg_slots ? ids[s] : s, num_slots));
    }
  }
}

}  // namespace

void group_rows(const LoraBatch& batch, int64_t first_row, int num_rows, int64_t num_slots,
                RowGroups& groups) {
  Slots slots, group_slots;
  std::array<int16_t, kWindowRows> group_of, rows_of_group, group_begin;
  resolve_slots(batch, first_row, num_rows, num_slots, slots);

  // Groups in the order of their first rows. Most rows continue the group of the row before.
  int num_groups = 0;
  for (int i = 0, group = 0; i < num_rows; ++i) {
    const int32_t slot = slots[size_t(i)];
    if (slot == kNoAdapter) continue;
    if (num_groups == 0 || group_slots[size_t(group)] != slot) {
      const auto end = group_slots.begin() + num_groups;
      group = static_cast<int>(std::find(group_slots.begin(), end, slot) - group_slots.begin());
      if (group == num_groups) {
        group_slots[size_t(group)] = slot;
        rows_of_group[size_t(group)] = 0;
        ++num_groups;
      }
    }
    group_of[size_t(i)] = static_cast<int16_t>(group);
    ++rows_of_group[size_t(group)];
  }

  groups.num_tiles = 0;
  for (int group = 0, first = 0; group < num_groups; ++group) {
    group_begin[size_t(group)] = static_cast<int16_t>(first);
    const int end = first + rows_of_group[size_t(group)];
    for (; first < end; first += kTileRows) {
      groups.tiles[groups.num_tiles++] = {
          .slot = group_slots[size_t(group)],
          .first = static_cast<int16_t>(first),
          .count = static_cast<int16_t>(std::min(kTileRows, end - first))};
    }
    first = end;
  }
  for (int i = 0; i < num_rows; ++i) {
    if (slots[size_t(i)] == kNoAdapter) continue;
    groups.rows[group_begin[size_t(group_of[size_t(i)])]++] = static_cast<uint16_t>(i);
  }
}

}  // namespace heddle
