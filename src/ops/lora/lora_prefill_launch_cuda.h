#pragma once

#include "cuda/check.h"

#include "ops/lora/lora_prefill_params.h"

namespace heddle::cuda {

/// Launches a kernel that waits for the one before by itself, where it does.
template <class Kernel>
void launch_second(Kernel kernel, const LoraPrefillParams& p, const LoraPrefillLaunch& launch,
                   int blocks, int threads, int bytes, bool waits) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = launch.stream;
  config.attrs = &early;
  config.numAttrs = waits && launch.starts_early ? 1 : 0;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
}

}  // namespace heddle::cuda
