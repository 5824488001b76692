#include <algorithm>

#include "cuda/copies/host_copies.h"
#include "cuda/early_launch.h"
#include "cuda/fault_cuda.h"
#include "cuda/memory_cuda.h"

#include "core/math.h"
#include "ops/mamba/mamba_state_selective_copy_launch.h"

namespace heddle::cuda::mamba {
namespace {

constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1, kMaxGridY = 65535;

/// Copies `bytes` bytes, which the block shares: whole words, and what is left one by one.
template <class Word>
__device__ void copy_piece(std::byte* to, const std::byte* from, int bytes) {
  constexpr int kSize = sizeof(Word);
  const int end = bytes / kSize * kSize, thread = static_cast<int>(threadIdx.x);
  for (int at = thread * kSize; at < end; at += kCopyThreads * kSize) {
    *reinterpret_cast<Word*>(to + at) = *reinterpret_cast<const Word*>(from + at);
  }
  if (end + thread < bytes) to[end + thread] = from[end + thread];  // fewer than a word
}

__device__ void copy_words(int word_bytes, std::byte* to, const std::byte* from, int bytes) {
  switch (word_bytes) {
    case 16: return copy_piece<uint4>(to, from, bytes);
    case 4: return copy_piece<uint32_t>(to, from, bytes);
    case 2: return copy_piece<uint16_t>(to, from, bytes);
    default: return copy_piece<uint8_t>(to, from, bytes);
  }
}

// Blocks that a multiprocessor runs at once where that is 1536 threads, on 8.6, 8.9 and 12.0; the
// registers allow 2048.
constexpr int kCopyBlocks = 1536 / kCopyThreads;

// current[l, slot] = intermediate[l, slot, accepted]: a block copies a slice of one request's state
// in one layer, each thread one word, which comes closer to a plain copy than longer slices do.
// Grid (slices of all states of all requests, layers), so that neighbours are copied at the same
// time; 256 threads.
template <int kStates>
__global__ void __launch_bounds__(kCopyThreads, kCopyBlocks)
    selective_copy_kernel(const __grid_constant__ SelectiveCopyLaunch<kStates> p) {
  const uint32_t i = blockIdx.x / p.num_slices, slice = blockIdx.x - i * p.num_slices;
  int s = 0;
#pragma unroll
  for (int next = 1; next < kStates; ++next) {
    if (slice >= p.states[next].first_slice) s = next;
  }
  const StateSlices& state = p.states[s];
  const StateCopy& copy = state.copy;

  wait_for_predecessor();
  // Four loads that do not wait for each other. A row that is only padding exists, too: the
  // arrays have max_active rows or more.
  const int64_t active = p.num_active.is_given() ? p.num_active.at(0) : p.max_active;
  const int64_t prefill = p.prefill_status.at(i), slot = p.state_idx.at(i);
  const int64_t accepted = p.accepted_counts.at(i);
  trigger_dependents();
  if (i >= active || prefill == 1 || slot < 0) return;
  if (slot >= copy.num_slots) {
    if (threadIdx.x == 0) {
      report_fault(p.faults, "mamba_state_selective_copy", "state_idx", i, slot);
    }
    return;
  }

  const int64_t token = accepted < 0 ? 0 : min(accepted, copy.max_accepted);
  const int64_t layer = blockIdx.y;
  const int64_t offset = int64_t{slice - state.first_slice} * kSliceBytes;
  copy_words(
      state.word_bytes,
      copy.current + layer * copy.current_layer_step + slot * copy.current_slot_step + offset,
      copy.intermediate + layer * copy.intermediate_layer_step +
          slot * copy.intermediate_slot_step + token * copy.intermediate_token_step + offset,
      static_cast<int>(min(int64_t{kSliceBytes}, copy.state_bytes - offset)));
}

template <int kStates>
void launch(const ExecContext& ctx, std::span<const StateCopy> states,
            const SelectiveCopyRequests& requests, int64_t max_active) {
  SelectiveCopyLaunch<kStates> p{
      .prefill_status = ConstIndexVector(requests.prefill_status),
      .state_idx = ConstIndexVector(requests.state_idx),
      .accepted_counts = ConstIndexVector(requests.accepted_counts),
      .num_active = {},
      .max_active = max_active,
      .faults = ctx.faults,
      .num_slices = 0,
      .states = {},
  };
  if (requests.num_active.on_device())
    p.num_active = ConstIndexVector(requests.num_active.tensor());
  int64_t num_slices = 0;
  for (size_t s = 0; s < kStates; ++s) {
    p.states[s].first_slice = static_cast<uint32_t>(num_slices);
    if (s >= states.size()) continue;  // no slice is its
    p.states[s].copy = states[s];
    p.states[s].word_bytes = word_bytes_of(states[s]);
    num_slices += ceil_div(states[s].state_bytes, kSliceBytes);
  }
  const int64_t num_blocks = num_slices * max_active;
  if (num_blocks > kMaxGridX || requests.num_layers > kMaxGridY) {
    throw_error(ErrorCode::kUnsupported, "the states of a layer have ", num_blocks, " slices of ",
                kSliceBytes, " bytes, and num_layers is ", requests.num_layers, ", at most ",
                kMaxGridX, " and ", kMaxGridY, " are supported");
  }
  p.num_slices = static_cast<uint32_t>(num_slices);
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(num_blocks), static_cast<unsigned>(requests.num_layers));
  config.blockDim = dim3(kCopyThreads);
  config.stream = ctx.stream;
  launch_early<selective_copy_kernel<kStates>>(ctx.device.index, config, p);
}
static_assert(sizeof(SelectiveCopyLaunch<2>) <= 360 &&
              sizeof(SelectiveCopyLaunch<kMaxMambaStates>) <= 1024);

}  // namespace

void mamba_state_selective_copy(const ExecContext& ctx, std::span<const StateCopy> states,
                                const SelectiveCopyRequests& requests) {
  const Count& count = requests.num_active;
  const int64_t num_requests = requests.state_idx.size(0);
  const int64_t max_active = count.given() && !count.on_device() ? count.value() : num_requests;
  if (states.empty() || requests.num_layers == 0 || max_active == 0) return;
  if (states.size() <= 2) {
    launch<2>(ctx, states, requests, max_active);
  } else {
    launch<kMaxMambaStates>(ctx, states, requests, max_active);
  }
}

void validate(const ExecContext& ctx, std::span<const StateCopy> states,
              const SelectiveCopyRequests& requests) {
  if (is_captured(ctx.stream)) return;
  HostCopies copy(ctx.stream);
  const ConstTensorView prefill = copy(requests.prefill_status), slots = copy(requests.state_idx);
  const ConstTensorView accepted = copy(requests.accepted_counts);
  const Count active = requests.num_active.on_device() ? Count(copy(requests.num_active.tensor()))
                                                       : requests.num_active;
  copy.wait();
  heddle::validate({.states = states,
                    .prefill_status = cpu::IndexArray(prefill),
                    .state_idx = cpu::IndexArray(slots),
                    .accepted_counts = cpu::IndexArray(accepted),
                    .num_layers = requests.num_layers,
                    .num_active = cpu::CountReader(active, slots.size(0))});
}

}  // namespace heddle::cuda::mamba
