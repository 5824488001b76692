#pragma once

#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "ops/linear_site/decode/expand_kernel_cuda.h"
#include "ops/linear_site/decode/shrink_kernel_cuda.h"

namespace heddle::cuda::linear_site {

template <class T>
void run_expand(const ExpandParams& p, int device, cudaStream_t stream) {
  constexpr auto kKernel = expand_kernel<T>;
  const uint32_t shared_bytes = shared_layout(p).bytes;
  allow_shared_memory<kKernel, kPortableSharedBytes, kExpandLargeBytes>(
      device, static_cast<int>(shared_bytes));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(p.site.num_tiles));
  config.blockDim = dim3(kLoraThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  launch_early<kKernel>(device, config, p);
}

/// Its shared memory is taken in addition to that of a decode kernel, so the chip may not be
/// divided otherwise for it.
template <class T>
void run_shrink(const ShrinkParams& p, int num_blocks, int device, cudaStream_t stream) {
  constexpr auto kKernel = shrink_kernel<T>;
  static AnswerPerDevice done;
  done(device, [] {
    HEDDLE_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  });
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(lora::kBlockThreads);
  config.stream = stream;
  launch_early<kKernel>(device, config, p);
}

}  // namespace heddle::cuda::linear_site
