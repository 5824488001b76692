#pragma once

#include <span>

#include "heddle/core/context.h"
#include "heddle/core/count.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// States of one call: the convolution's, the scan's and so on.
inline constexpr int kMaxMambaStates = 8;

/// One kind of state and the copies of it that a pass over drafts keeps after each of its tokens.
/// Same dtype, any of heddle's; axes of the state without gaps, strides of the axes before them
/// any.
struct MambaState {
  TensorView current;            // [num_state_layers, num_slots, *state]
  ConstTensorView intermediate;  // [num_state_layers, num_slots, S + 1, *state]
};

/// Puts the state after the last accepted token where the next step looks for it. For every state
/// of the list, every layer l < num_layers and every request i < num_active with prefill_status[i]
/// != 1 and state_idx[i] in [0, num_slots):
///   current[l, state_idx[i]] = intermediate[l, state_idx[i], min(max(accepted_counts[i], 0), S)]
/// Bytes are copied as they are. Nothing else is touched: prefill requests, requests without a slot
/// (-1, or any other index outside), layers from num_layers on. num_active not given: all requests.
/// Two requests must not share a slot, and the two tensors of a state must not overlap. Empty
/// batches and states of no elements are legal.
///   prefill_status, state_idx, accepted_counts [num_requests] i32|i64, each its own; 0 <=
///   num_layers <= num_state_layers; up to kMaxMambaStates states, whose sizes, dtypes and S may
///   differ
/// With HEDDLE_VALIDATE=1 an accepted count outside [0, S], a slot >= num_slots and a slot used
/// twice throw kInvalidArgument with row and value; without it CudaContext::check() reports a slot
/// >= num_slots. On the CPU and, in one launch on ctx.stream, on CUDA. Semantics: Megatron-LM,
/// mtp_utils_triton.py.
void mamba_state_selective_copy(const ExecContext& ctx, std::span<const MambaState> states,
                                ConstTensorView prefill_status, ConstTensorView state_idx,
                                ConstTensorView accepted_counts, int64_t num_layers,
                                const Count& num_active = {});

}  // namespace heddle
