#pragma once

#include "cuda/shared_memory.h"

#include "heddle/core/error.h"

#include "ops/linear_site/prompt/prompt_kernel_sm90.h"

namespace heddle::cuda::linear_site {

template <class T, int kOutputs>
void launch_prompt_tile(const PromptParams& p, const PromptKernel& kernel, int device,
                        cudaStream_t stream) {
  constexpr auto kKernel = prompt_kernel<T, kOutputs>;
  constexpr int kBytes = prompt_shared_bytes(kOutputs);
  allow_shared_memory<kKernel, kPortableSharedBytes, kBytes>(device, kBytes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(kernel.num_blocks));
  config.blockDim = dim3(kPromptThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  launch_clusters_early<kKernel>(device, config, static_cast<unsigned>(kernel.cluster_size), p);
}

template <class T>
void launch_tiles(const PromptParams& p, const PromptKernel& kernel, int device,
                  cudaStream_t stream) {
  switch (kernel.tile_outputs) {
    case 64: return launch_prompt_tile<T, 64>(p, kernel, device, stream);
    case 128: return launch_prompt_tile<T, 128>(p, kernel, device, stream);
    case 256: return launch_prompt_tile<T, 256>(p, kernel, device, stream);
    default:
      throw_error(ErrorCode::kUnsupported, "linear_site: no kernel for tiles of ",
                  kernel.tile_outputs, " outputs");
  }
}

}  // namespace heddle::cuda::linear_site
