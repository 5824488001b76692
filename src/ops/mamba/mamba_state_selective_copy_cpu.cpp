#include <algorithm>
#include <cstring>

#include "core/math.h"
#include "ops/mamba/mamba_state_selective_copy_kernels.h"

namespace heddle::cpu::mamba {
namespace {

// A slice is what one memcpy moves, so that few large states are shared among threads, too; a task
// is some 10 us of copying, less is not worth another thread.
constexpr int64_t kSliceBytes = 64 << 10;
constexpr int64_t kTaskBytes = 128 << 10;

/// Slices of one state: number (l * num_active + i) * slices_per_state + k is the
/// k-th of request i in layer l.
void copy_slices(const SelectiveCopyParams& params, const StateCopy& state, int64_t num_active,
                 int64_t begin, int64_t end) {
  const int64_t slices_per_state = ceil_div(state.state_bytes, kSliceBytes);
  for (int64_t slice = begin; slice < end; ++slice) {
    const int64_t row = slice / slices_per_state, k = slice % slices_per_state;
    const int64_t layer = row / num_active, i = row % num_active;
    const int64_t slot = params.slot(i, state.num_slots);
    if (slot < 0) continue;
    const int64_t token = std::clamp(params.accepted_counts[i], int64_t{0}, state.max_accepted);
    const int64_t offset = k * kSliceBytes;
    std::memcpy(
        state.current + layer * state.current_layer_step + slot * state.current_slot_step + offset,
        state.intermediate + layer * state.intermediate_layer_step +
            slot * state.intermediate_slot_step + token * state.intermediate_token_step + offset,
        static_cast<size_t>(std::min(kSliceBytes, state.state_bytes - offset)));
  }
}

}  // namespace

void mamba_state_selective_copy(const ExecContext& ctx, const SelectiveCopyParams& params) {
  const int64_t num_active = params.num_active.read();
  for (const StateCopy& state : params.states) {
    const int64_t slices_per_state = ceil_div(state.state_bytes, kSliceBytes);
    const int64_t grain =
        std::max<int64_t>(1, kTaskBytes / std::min(kSliceBytes, state.state_bytes));
    parallel_for(
        ctx, params.num_layers * num_active * slices_per_state, grain,
        [&](int64_t begin, int64_t end) { copy_slices(params, state, num_active, begin, end); });
  }
}

}  // namespace heddle::cpu::mamba
