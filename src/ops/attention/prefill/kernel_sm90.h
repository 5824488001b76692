#pragma once

// The kernel of batch_prefill for compute capability 9.0, and its launch.

#include <algorithm>
#include <type_traits>

#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/sm90/warpgroup_registers_cuda.h"

#include "ops/attention/prefill/attend_sm90.h"
#include "ops/attention/prefill/launch.h"
#include "ops/attention/prefill/load_codes_sm90.h"

namespace heddle::cuda::attention::prefill {

// o = softmax(scale q k^T) v with an online softmax. Grid: a block for each multiprocessor, or for
// each item where those are fewer. Block: S::kThreads.
template <class T, class S, class Params>
__global__ void __launch_bounds__(S::kThreads, 1)
    prefill_sm90_kernel(const __grid_constant__ Params p) {
  // Together no more than the three warpgroups begin with, 168 each.
  constexpr int kLoadRegisters = S::kCodes ? 88 : 72, kAttendRegisters = S::kCodes ? 208 : 216;
  static_assert(kLoadRegisters + S::kGroups * kAttendRegisters <= 168 * (1 + S::kGroups));
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<PrefillShared<S>*>(
      reinterpret_cast<std::byte*>(memory) + round_up(shared_address(memory), kSharedAlignment) -
      shared_address(memory));
  if (threadIdx.x == 0) {
    shared.init();
    show_to_copy_engine();
  }
  __syncthreads();
  wait_for_predecessor();
  const int role = static_cast<int>(threadIdx.x) / 128;
  if (role == 0) {
    give_back_registers<kLoadRegisters>();
    if constexpr (S::kCodes) {
      load_codes<T, S>(p, shared);
    } else {
      load<S>(p, shared);
    }
  } else {
    take_registers<kAttendRegisters>();
    attend<T, S>(p, shared, role - 1);
  }
}

template <class T, int kDim, class Params>
void launch_sm90_instance(const Params& p, const AttentionLaunch& launch) {
  using S = ShapeSm90<kDim, std::is_same_v<Params, CodePrefillSm90Params>>;
  using Element = std::conditional_t<std::is_same_v<T, half>, __half, __nv_bfloat16>;
  constexpr auto kKernel = prefill_sm90_kernel<Element, S, Params>;
  constexpr int kBytes = int{sizeof(PrefillShared<S>)} + kSharedAlignment;
  allow_shared_memory<kKernel, 0, kBytes>(launch.device, kBytes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(p.num_items, launch.info.num_sms)));
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = launch.stream;
  launch_early<kKernel>(launch.device, config, p);
}

}  // namespace heddle::cuda::attention::prefill
