#pragma once

#include <cstdint>

#include "cuda/index.h"

#include "ops/mamba/mamba_state_selective_copy_kernels.h"

namespace heddle::cuda::mamba {

/// A state, cut into slices that one block copies each.
struct StateSlices {
  StateCopy copy;
  uint32_t first_slice;  // of all slices of the states, in their order
  int32_t word_bytes;    // all addresses and steps are multiples of it: 16, 4, 2 or 1
};
inline constexpr int kCopyThreads = 256, kSliceBytes = kCopyThreads * 16;

/// Most models have two states, those of the convolution and of the scan.
template <int kStates>
struct SelectiveCopyLaunch {
  ConstIndexVector prefill_status, state_idx, accepted_counts;  // [num_requests]
  ConstIndexVector num_active;                                  // [1], or absent: max_active
  int64_t max_active;
  FaultRecord* faults;  // of the context
  uint32_t num_slices;  // of one request in one layer
  StateSlices states[kStates];
};

/// The largest of 16, 4, 2 and 1 that divides all addresses and steps.
[[nodiscard]] inline int32_t word_bytes_of(const StateCopy& s) {
  const uint64_t bits =
      reinterpret_cast<uint64_t>(s.current) | reinterpret_cast<uint64_t>(s.intermediate) |
      static_cast<uint64_t>(s.current_layer_step) | static_cast<uint64_t>(s.current_slot_step) |
      static_cast<uint64_t>(s.intermediate_layer_step) |
      static_cast<uint64_t>(s.intermediate_slot_step) |
      static_cast<uint64_t>(s.intermediate_token_step);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
}

}  // namespace heddle::cuda::mamba
