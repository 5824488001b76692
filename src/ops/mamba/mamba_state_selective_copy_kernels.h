#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/ops/mamba.h"

#include "cpu/count_reader.h"
#include "cpu/index_array.h"

namespace heddle {

/// A MambaState in bytes.
struct StateCopy {
  std::byte* current;             // [num_layers, num_slots, state_bytes]
  const std::byte* intermediate;  // [num_layers, num_slots, max_accepted + 1, state_bytes]
  int64_t state_bytes;
  int64_t current_layer_step, current_slot_step;
  int64_t intermediate_layer_step, intermediate_slot_step, intermediate_token_step;
  int64_t num_slots, max_accepted;
};

struct SelectiveCopyParams {
  StateCopy states[kMaxMambaStates];
  int num_states;
  cpu::IndexArray prefill_status;   // [num_requests]
  cpu::IndexArray state_idx;        // [num_requests]
  cpu::IndexArray accepted_counts;  // [num_requests]
  int64_t num_layers;
  cpu::CountReader num_active;

  /// The slot of request i in a state of num_slots; below 0 for one of which nothing is copied.
  [[nodiscard]] int64_t slot(int64_t i, int64_t num_slots) const {
    if (prefill_status[i] == 1) return -1;
    const int64_t slot = state_idx[i];
    return slot < num_slots ? slot : -1;
  }
};

namespace cpu {
void mamba_state_selective_copy(const ExecContext& ctx, const SelectiveCopyParams& params);
}

}  // namespace heddle
