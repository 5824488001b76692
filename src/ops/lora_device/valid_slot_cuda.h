#pragma once

#include "ops/lora_device/batch_rows.h"

namespace heddle::cuda::lora {

/// The slot, or kNoAdapter for one outside [0, num_slots).
__device__ inline int32_t valid_slot(int64_t slot, int32_t num_slots) {
  return slot >= 0 && slot < num_slots ? static_cast<int32_t>(slot) : kNoAdapter;
}

/// The same of a segment.
__device__ inline int32_t slot_of_segment(const BatchRows& rows, int segment) {
  return valid_slot(rows.seg_slots.is_given() ? rows.seg_slots.at(segment) : segment,
                    rows.num_slots);
}

}  // namespace heddle::cuda::lora
