#pragma once

#include "ops/lora/device/params.h"

namespace heddle::cuda::lora {

__device__ inline int64_t read_index(const Indices& a, int64_t i) {
  return a.is_int64 ? static_cast<const int64_t*>(a.data)[i * a.stride]
                    : static_cast<const int32_t*>(a.data)[i * a.stride];
}

/// The slot, or kNoAdapter for one outside [0, num_slots).
__device__ inline int32_t valid_slot(int64_t slot, int32_t num_slots) {
  return slot >= 0 && slot < num_slots ? static_cast<int32_t>(slot) : kNoAdapter;
}

}  // namespace heddle::cuda::lora
