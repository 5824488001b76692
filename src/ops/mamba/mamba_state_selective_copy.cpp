#include <array>
#include <ostream>
#include <utility>
#include <vector>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/mamba.h"

#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/mamba/mamba_state_selective_copy_kernels.h"

namespace heddle {
namespace {

/// Names a tensor of the list without making a string, which only errors need: "current_states[1]".
struct TensorName {
  size_t state;
  const char* list;
  friend std::ostream& operator<<(std::ostream& os, const TensorName& name) {
    return os << name.list << "[" << name.state << "]";
  }
};

/// On the context's device, and without gaps from axis `first` on.
void check_dense(const ExecContext& ctx, const TensorName& tensor, const ConstTensorView& t,
                 int first) {
  HEDDLE_CHECK(t.device() == ctx.device, tensor, " is on ", t.device(), ", the context runs on ",
               ctx.device);
  int64_t stride = 1;
  for (int d = t.rank() - 1; d >= first; --d) {
    HEDDLE_CHECK(t.size(d) <= 1 || stride == 0 || t.stride(d) == stride, tensor, ".stride(", d,
                 ") is ", t.stride(d), ", expected ", stride);
    stride *= t.size(d);
  }
}

/// [num_state_layers, num_slots, *state] and [num_state_layers, num_slots, S + 1, *state].
void check_state(const ExecContext& ctx, size_t s, const MambaState& state, int64_t num_layers) {
  const ConstTensorView& current = state.current;
  const ConstTensorView& intermediate = state.intermediate;
  const TensorName to{s, "current_states"}, from{s, "intermediate_states"};
  HEDDLE_CHECK(current.rank() >= 2, to, " has rank ", current.rank(), ", expected at least 2");
  HEDDLE_CHECK(intermediate.rank() == current.rank() + 1, from, " has rank ", intermediate.rank(),
               ", expected ", current.rank() + 1, ", one more than ", to);
  for (int d = 0; d < current.rank(); ++d) {
    const int axis = d < 2 ? d : d + 1;
    HEDDLE_CHECK(intermediate.size(axis) == current.size(d), from, ".size(", axis, ") is ",
                 intermediate.size(axis), ", expected ", to, ".size(", d, ") = ", current.size(d));
  }
  HEDDLE_CHECK(intermediate.dtype() == current.dtype(), from, " is ", intermediate.dtype(),
               ", expected ", current.dtype(), " as ", to);
  HEDDLE_CHECK(num_layers <= current.size(0), "num_layers is ", num_layers, ", expected at most ",
               to, ".size(0) = ", current.size(0));
  check_dense(ctx, to, current, 2);
  check_dense(ctx, from, intermediate, 3);
}

StateCopy pack(const MambaState& state) {
  const int64_t element = static_cast<int64_t>(size_of(state.current.dtype()));
  int64_t state_bytes = element;
  for (int d = 2; d < state.current.rank(); ++d) state_bytes *= state.current.size(d);
  return {.current = state.current.raw(),
          .intermediate = state.intermediate.raw(),
          .state_bytes = state_bytes,
          .current_layer_step = state.current.stride(0) * element,
          .current_slot_step = state.current.stride(1) * element,
          .intermediate_layer_step = state.intermediate.stride(0) * element,
          .intermediate_slot_step = state.intermediate.stride(1) * element,
          .intermediate_token_step = state.intermediate.stride(2) * element,
          .num_slots = state.current.size(1),
          .max_accepted = state.intermediate.size(2) - 1};
}

}  // namespace

void validate(const SelectiveCopyParams& params) {
  cpu::validate_count("num_active", params.num_active, "num_requests");
  const int64_t num_active = params.num_active.read();
  for (const StateCopy& state : params.states) {
    std::vector<int64_t> owner(static_cast<size_t>(state.num_slots), -1);
    for (int64_t i = 0; i < num_active; ++i) {
      const int64_t slot = params.state_idx[i], accepted = params.accepted_counts[i];
      if (params.prefill_status[i] == 1 || slot < 0) continue;
      cpu::check_index("state_idx", i, slot, 0, state.num_slots, "num_slots");
      HEDDLE_CHECK(accepted >= 0 && accepted <= state.max_accepted, "accepted_counts[", i, "] is ",
                   accepted, ", expected 0 to num_speculative_tokens = ", state.max_accepted);
      int64_t& first = owner[static_cast<size_t>(slot)];
      HEDDLE_CHECK(first < 0, "state_idx[", i, "] is ", slot, ", as state_idx[", first, "]");
      first = i;
    }
  }
}

void mamba_state_selective_copy(const ExecContext& ctx, std::span<const MambaState> states,
                                ConstTensorView prefill_status, ConstTensorView state_idx,
                                ConstTensorView accepted_counts, int64_t num_layers,
                                const Count& num_active) {
  HEDDLE_CHECK(states.size() <= size_t{kMaxMambaStates}, "states has ", states.size(),
               " entries, at most ", kMaxMambaStates, " are supported");
  HEDDLE_CHECK(num_layers >= 0, "num_layers is ", num_layers, ", expected at least 0");
  Dim requests("num_requests");
  for (const auto& [tensor, t] : {std::pair{"prefill_status", prefill_status},
                                  {"state_idx", state_idx},
                                  {"accepted_counts", accepted_counts}}) {
    check_shape(tensor, t, {&requests});
    check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
    check_device(ctx, {{tensor, t}});
  }
  check_count("num_active", ctx, num_active, requests.value());

  std::array<StateCopy, kMaxMambaStates> copies;
  size_t num_copies = 0;
  for (size_t s = 0; s < states.size(); ++s) {
    check_state(ctx, s, states[s], num_layers);
    if (states[s].intermediate.num_elements() == 0) continue;  // nothing to copy
    copies[num_copies++] = pack(states[s]);
  }
  const std::span<const StateCopy> to_copy(copies.data(), num_copies);
  if (ctx.device.type == DeviceType::kCpu) {
    const SelectiveCopyParams params{
        .states = to_copy,
        .prefill_status = cpu::IndexArray(prefill_status),
        .state_idx = cpu::IndexArray(state_idx),
        .accepted_counts = cpu::IndexArray(accepted_counts),
        .num_layers = num_layers,
        .num_active = cpu::CountReader(num_active, requests.value()),
    };
    if (validating()) validate(params);
    cpu::mamba::mamba_state_selective_copy(ctx, params);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("mamba_state_selective_copy");
    const cuda::mamba::SelectiveCopyRequests there{.prefill_status = prefill_status,
                                                   .state_idx = state_idx,
                                                   .accepted_counts = accepted_counts,
                                                   .num_layers = num_layers,
                                                   .num_active = num_active};
    if (validating()) cuda::mamba::validate(ctx, to_copy, there);
    cuda::mamba::mamba_state_selective_copy(ctx, to_copy, there);
  } else {
    throw_error(ErrorCode::kUnsupported, "mamba_state_selective_copy: built without CUDA");
  }
}

}  // namespace heddle
