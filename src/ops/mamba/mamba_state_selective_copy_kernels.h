#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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
  std::span<const StateCopy> states;
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

/// For HEDDLE_VALIDATE: throws for counts out of range, and slots past the end or used twice. The
/// arrays lie in host memory.
void validate(const SelectiveCopyParams& params);

namespace cpu::mamba {
void mamba_state_selective_copy(const ExecContext& ctx, const SelectiveCopyParams& params);
}

namespace cuda::mamba {

/// What every state of a call has in common.
struct SelectiveCopyRequests {
  ConstTensorView prefill_status, state_idx, accepted_counts;  // [num_requests]
  int64_t num_layers;
  Count num_active;
};
void mamba_state_selective_copy(const ExecContext& ctx, std::span<const StateCopy> states,
                                const SelectiveCopyRequests& requests);

/// `validate` of copies of the arrays; waits for the stream. Checks nothing while that is being
/// captured.
void validate(const ExecContext& ctx, std::span<const StateCopy> states,
              const SelectiveCopyRequests& requests);

}  // namespace cuda::mamba
}  // namespace heddle
