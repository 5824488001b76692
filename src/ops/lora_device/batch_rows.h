#pragma once

#include <cstdint>

#include "cuda/index.h"

#include "heddle/ops/lora.h"

namespace heddle::cuda::lora {

/// Which slot each row of a batch uses.
struct BatchRows {
  int32_t num_slots, num_segments;
  ConstIndexVector slot_ids, seg_starts;
  ConstIndexVector seg_stops;  // behind the last row of each, or with has_lengths their rows
  ConstIndexVector seg_slots;
  bool has_lengths;

  /// Behind the last row of a segment that begins at `start`.
  [[nodiscard]] constexpr int64_t end(int segment, int64_t start) const {
    const int64_t stop = seg_stops.at(segment);
    return !has_lengths
               ? stop
               : static_cast<int64_t>(static_cast<uint64_t>(start) + static_cast<uint64_t>(stop));
  }
};
[[nodiscard]] inline BatchRows batch_rows(const LoraBatch& batch, int32_t num_slots) {
  const bool has_lengths{batch.seg_lens};
  return {.num_slots = num_slots,
          .num_segments = batch.seg_starts ? static_cast<int32_t>(batch.seg_starts.size(0)) : 0,
          .slot_ids = ConstIndexVector(batch.slot_ids),
          .seg_starts = ConstIndexVector(batch.seg_starts),
          .seg_stops = ConstIndexVector(has_lengths ? batch.seg_lens : batch.seg_ends),
          .seg_slots = ConstIndexVector(batch.seg_slots),
          .has_lengths = has_lengths};
}

}  // namespace heddle::cuda::lora
