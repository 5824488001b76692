#pragma once

#include "cuda/shared_memory.h"

#include "ops/linear_site/portable/portable_decode_cuda.h"
#include "ops/linear_site/portable/portable_prompt_cuda.h"

namespace heddle::cuda::linear_site {

/// As an ordinary launch: chips before 9.0 have no other, and the kernels nothing to do before
/// what they read is written.
template <auto kKernel, class Params>
void launch_blocks(const Params& p, const PortableKernel& kernel, int device, cudaStream_t stream) {
  allow_shared_memory<kKernel, int{kPortableSmallBytes}, int{kPortableLargeBytes}>(
      device, static_cast<int>(kernel.shared_bytes));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(kernel.num_blocks));
  config.blockDim = dim3(kPortableThreads);
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, p));
}

template <class T>
void launch_rows(const PortableDecodeParams& p, const PortableKernel& kernel, int device,
                 cudaStream_t stream) {
  if (p.num_rows <= 32) {
    return launch_blocks<portable_decode_kernel<T, 4, 2, 1>>(p, kernel, device, stream);
  }
  if (p.num_rows <= 64) {
    return launch_blocks<portable_decode_kernel<T, 8, 2, 1>>(p, kernel, device, stream);
  }
  launch_blocks<portable_decode_kernel<T, 8, 4, 2>>(p, kernel, device, stream);
}

template <class T>
void launch_rows(const PortablePromptParams& p, const PortableKernel& kernel, int device,
                 cudaStream_t stream) {
  if (kernel.tile_outputs == 256) {
    return launch_blocks<portable_prompt_kernel<T, 256>>(p, kernel, device, stream);
  }
  launch_blocks<portable_prompt_kernel<T, 128>>(p, kernel, device, stream);
}

}  // namespace heddle::cuda::linear_site
