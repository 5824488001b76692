#pragma once

#include "cuda/shared_memory.h"

#include "heddle/core/error.h"

#include "ops/linear_site/decode/decode_kernel_sm90.h"

namespace heddle::cuda::linear_site {

template <class T, int kOutputs, int kGroups>
void launch_tile(const DecodeParams& p, const SiteKernel& kernel, int device, cudaStream_t stream) {
  constexpr auto kKernel = decode_kernel<T, kOutputs, kGroups>;
  allow_shared_memory<kKernel, kPortableSharedBytes, kLargeSharedBytes>(
      device, static_cast<int>(kernel.shared_bytes));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(kernel.num_blocks));
  config.blockDim = dim3(block_threads(kGroups));
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  launch_clusters_early<kKernel>(device, config, static_cast<unsigned>(kernel.cluster_size), p);
}

template <class T>
void launch(const DecodeParams& p, const SiteKernel& kernel, int device, cudaStream_t stream) {
  switch (kernel.groups * 1000 + kernel.tile_outputs) {
    case 1064: return launch_tile<T, 64, 1>(p, kernel, device, stream);
    case 1096: return launch_tile<T, 96, 1>(p, kernel, device, stream);
    case 1144: return launch_tile<T, 144, 1>(p, kernel, device, stream);
    case 1224: return launch_tile<T, 224, 1>(p, kernel, device, stream);
    case 2096: return launch_tile<T, 96, 2>(p, kernel, device, stream);
    case 2112: return launch_tile<T, 112, 2>(p, kernel, device, stream);
    case 2144: return launch_tile<T, 144, 2>(p, kernel, device, stream);
    default:
      throw_error(ErrorCode::kUnsupported, "linear_site: no kernel for tiles of ",
                  kernel.tile_outputs, " outputs and ", kernel.groups, " groups of rows");
  }
}

}  // namespace heddle::cuda::linear_site
