#pragma once

#include "cuda/check.h"
#include "cuda/early_launch.h"

#include "ops/lora_device/grouped/grouped_params.h"

namespace heddle::cuda::lora {

/// Launches a kernel of a call. waits: the kernel calls wait_for_predecessor() itself, so that it
/// may start before the one in front of it has ended.
template <auto kKernel>
void launch_part(const GroupedParams& p, const GroupedLaunch& launch, int blocks, int threads,
                 int bytes, bool waits) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = launch.stream;
  if (waits) return launch_early<kKernel>(launch.device, config, p);
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, p));
}

}  // namespace heddle::cuda::lora
