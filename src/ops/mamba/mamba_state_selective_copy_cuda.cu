#include <algorithm>

#include "cuda/check.h"
#include "cuda/host_copies.h"
#include "cuda/memory_cuda.h"

#include "ops/mamba/mamba_state_selective_copy_launch.h"

namespace heddle::cuda {
namespace {

constexpr int64_t kMaxGridY = 65535, kMaxGridZ = 65535;

__device__ int64_t read_index(const IndexVector& a, int64_t i) {
  const std::byte* element = a.data + i * a.step;
  return a.is_wide ? *reinterpret_cast<const int64_t*>(element)
                   : *reinterpret_cast<const int32_t*>(element);
}

template <class Word>
__device__ Word load_word(const std::byte* p) {
  if constexpr (sizeof(Word) == 16) return load_once_16(p);
  return *reinterpret_cast<const Word*>(p);
}

/// Copies `bytes` bytes, which the block shares: whole words, kCopyUnroll of a thread at a time, and what is left one by one.
template <class Word>
__device__ void copy_piece(std::byte* to, const std::byte* from, int bytes) {
  constexpr int kSize = sizeof(Word), kStep = kCopyThreads * kSize;
  const int end = bytes / kSize * kSize, thread = static_cast<int>(threadIdx.x);
  for (int base = thread * kSize; base < end; base += kStep * kCopyUnroll) {
    Word words[kCopyUnroll];
#pragma unroll
    for (int k = 0; k < kCopyUnroll; ++k) {
      if (base + k * kStep < end) words[k] = load_word<Word>(from + base + k * kStep);
    }
#pragma unroll
    for (int k = 0; k < kCopyUnroll; ++k) {
      if (base + k * kStep < end) *reinterpret_cast<Word*>(to + base + k * kStep) = words[k];
    }
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

// current[l, slot] = intermediate[l, slot, accepted]: a block copies a piece of one request's state in one layer.
// Grid (requests, layers, pieces of all states), the last two at most 65535, beyond which blocks take several; 256 threads.
template <int kStates>
__global__ void __launch_bounds__(kCopyThreads, kStates == 2 ? 3 : 2)
    selective_copy_kernel(const __grid_constant__ SelectiveCopyLaunch<kStates> p) {
  const int64_t i = blockIdx.x;
  // Four loads that do not wait for each other. A row that is only padding is there, too: the arrays have max_active rows or more.
  const int64_t active = p.num_active.data == nullptr ? p.max_active : read_index(p.num_active, 0);
  const int64_t prefill = read_index(p.prefill_status, i), slot = read_index(p.state_idx, i);
  const int64_t accepted = read_index(p.accepted_counts, i);
  if (i >= active || prefill == 1 || slot < 0) return;

  int num_pieces = 0;
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    if (s < p.num_states) num_pieces = p.states[s].first_piece + p.states[s].num_pieces;
  }
  for (int z = static_cast<int>(blockIdx.z); z < num_pieces; z += static_cast<int>(gridDim.z)) {
    int s = 0;
#pragma unroll
    for (int next = 1; next < kStates; ++next) {
      if (next < p.num_states && z >= p.states[next].first_piece) s = next;
    }
    const StatePieces& state = p.states[s];
    const StateCopy& copy = state.copy;
    if (slot >= copy.num_slots) continue;
    const int64_t token = accepted < 0 ? 0 : min(accepted, copy.max_accepted);
    const int64_t offset = (z - state.first_piece) * p.piece_bytes;
    const int bytes = static_cast<int>(min(p.piece_bytes, copy.state_bytes - offset));
    for (int64_t layer = blockIdx.y; layer < p.num_layers; layer += gridDim.y) {
      copy_words(
          state.word_bytes,
          copy.current + layer * copy.current_layer_step + slot * copy.current_slot_step + offset,
          copy.intermediate + layer * copy.intermediate_layer_step +
              slot * copy.intermediate_slot_step + token * copy.intermediate_token_step + offset,
          bytes);
    }
  }
}

IndexVector index_vector(const ConstTensorView& t) {
  const auto element = static_cast<int64_t>(size_of(t.dtype()));
  return {.data = t.raw(),
          .step = t.rank() == 0 ? element : t.stride(0) * element,
          .is_wide = t.dtype() == DType::kInt64};
}

template <int kStates>
void launch(const ExecContext& ctx, std::span<const StateCopy> states,
            const SelectiveCopyRequests& requests, int64_t max_active) {
  int64_t bytes = 0;  // of one layer of one request
  for (const StateCopy& state : states) bytes += state.state_bytes;
  SelectiveCopyLaunch<kStates> p{
      .prefill_status = index_vector(requests.prefill_status),
      .state_idx = index_vector(requests.state_idx),
      .accepted_counts = index_vector(requests.accepted_counts),
      .num_active = {},
      .num_layers = requests.num_layers,
      .max_active = max_active,
      .piece_bytes = piece_bytes_of(bytes * requests.num_layers * max_active, ctx.info.num_sms),
      .num_states = static_cast<int32_t>(states.size()),
      .states = {},
  };
  if (requests.num_active.on_device()) p.num_active = index_vector(requests.num_active.tensor());
  int64_t num_pieces = 0;
  for (size_t s = 0; s < states.size(); ++s) {
    const int64_t pieces = (states[s].state_bytes + p.piece_bytes - 1) / p.piece_bytes;
    p.states[s] = {.copy = states[s],
                   .first_piece = static_cast<int32_t>(num_pieces),
                   .num_pieces = static_cast<int32_t>(pieces),
                   .word_bytes = word_bytes_of(states[s])};
    num_pieces += pieces;
  }
  const dim3 grid(static_cast<unsigned>(max_active),
                  static_cast<unsigned>(std::min(requests.num_layers, kMaxGridY)),
                  static_cast<unsigned>(std::min(num_pieces, kMaxGridZ)));
  selective_copy_kernel<kStates><<<grid, kCopyThreads, 0, ctx.stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
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

}  // namespace heddle::cuda
