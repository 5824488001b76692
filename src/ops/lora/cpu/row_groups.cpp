#include "ops/lora/cpu/row_groups.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "heddle/core/check.h"

#include "cpu/index_array.h"
#include "ops/lora/checks/segment_ends.h"

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

void check_index_vector(const char* tensor, const ConstTensorView& t, Dim& extent) {
  check_shape(tensor, t, {&extent});
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
}

void check_factors(const char* tensor, const ConstTensorView& t, Dim& extent) {
  if (!t) return;
  check_shape(tensor, t, {&extent});
  check_dtype(tensor, t, {DType::kFloat32});
  check_unit_stride(tensor, t);
}

void check_pairs(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens) {
  HEDDLE_CHECK(batch.pair_starts && batch.pair_slots, "the batch has ",
               batch.pair_starts ? "pair_starts" : "pairs", ", but no ",
               batch.pair_starts ? "pair_slots" : "pair_starts");
  HEDDLE_CHECK(!batch.plan, "the batch has pairs and a plan, but calls with pairs make their own");
  check_device(ctx, {{"pair_starts", batch.pair_starts},
                     {"pair_slots", batch.pair_slots},
                     {"pair_scales", batch.pair_scales}});
  Dim starts("num_tokens + 1", num_tokens + 1), pairs("num_pairs");
  check_index_vector("pair_starts", batch.pair_starts, starts);
  check_index_vector("pair_slots", batch.pair_slots, pairs);
  check_factors("pair_scales", batch.pair_scales, pairs);
  HEDDLE_CHECK(batch.max_pairs || ctx.device.type == DeviceType::kCpu,
               "max_pairs is absent, but pair_starts is on ", ctx.device,
               ", where a call does not look");
  HEDDLE_CHECK(!batch.max_pairs || *batch.max_pairs >= 0, "max_pairs is ", *batch.max_pairs,
               ", expected at least 0");
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

void check_batch(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
                 TakesPairs takes_pairs) {
  check_device(ctx, {{"slot_ids", batch.slot_ids},
                     {"seg_starts", batch.seg_starts},
                     {"seg_ends", batch.seg_ends},
                     {"seg_lens", batch.seg_lens},
                     {"seg_slots", batch.seg_slots},
                     {"row_scale", batch.row_scale}});
  Dim tokens("num_tokens", num_tokens), segments("num_segments");
  const bool has_segments = batch.seg_starts || batch.seg_ends || batch.seg_lens || batch.seg_slots;
  if (batch.pair_starts || batch.pair_slots || batch.pair_scales) {
    HEDDLE_CHECK(takes_pairs == TakesPairs::kYes,
                 "the batch has pairs, which lora_apply alone takes");
    HEDDLE_CHECK(!batch.slot_ids && !has_segments,
                 "the batch has pairs and slot_ids or segments, expected one of them");
    check_pairs(ctx, batch, num_tokens);
  } else if (batch.slot_ids) {
    HEDDLE_CHECK(!has_segments, "the batch has both slot_ids and segments, expected one of them");
    check_index_vector("slot_ids", batch.slot_ids, tokens);
  } else {
    HEDDLE_CHECK(batch.seg_starts, "the batch has neither slot_ids nor segments",
                 takes_pairs == TakesPairs::kYes ? " nor pairs" : "");
    check_index_vector("seg_starts", batch.seg_starts, segments);
    HEDDLE_CHECK(!batch.seg_ends || !batch.seg_lens,
                 "the batch has both seg_ends and seg_lens, expected one of them");
    if (batch.seg_lens) {
      check_index_vector("seg_lens", batch.seg_lens, segments);
    } else {
      check_index_vector("seg_ends", batch.seg_ends, segments);
    }
    if (batch.seg_slots) check_index_vector("seg_slots", batch.seg_slots, segments);
  }
  check_factors("row_scale", batch.row_scale, tokens);
}

}  // namespace heddle
