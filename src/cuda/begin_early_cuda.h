#pragma once

#include <cstdint>

#include "cuda/memory_cuda.h"

namespace heddle::cuda {

/// Has the parameters of a kernel fetched, which come 64 bytes at a time.
template <class Params>
__device__ void fetch_parameters(const Params& p) {
#if __CUDA_ARCH__ >= 900
  constexpr int kLine = 16, kWords = sizeof(Params) / 4;
  const auto* words = reinterpret_cast<const uint32_t*>(&p);
#pragma unroll
  for (int i = 0; i < kWords; i += kLine) asm volatile("" ::"r"(words[i]));
  asm volatile("" ::"r"(words[kWords - 1]));
#endif
}

/// How a small kernel that is launched early (early_launch.h) begins: it has its parameters fetched
/// while the previous kernel still runs, and waits for that one. One that lets the next one
/// come says so before (trigger_dependents()); its own blocks are all in place by then.
template <class Params>
__device__ void begin_early(const Params& p) {
  fetch_parameters(p);
  wait_for_predecessor();
}

}  // namespace heddle::cuda
