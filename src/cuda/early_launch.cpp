#include "cuda/early_launch.h"

namespace heddle::cuda {

bool has_room_for_cluster(const void* kernel, unsigned size) {
  HEDDLE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaFuncAttributes attributes{};
  HEDDLE_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {size, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(size);
  config.blockDim = dim3(static_cast<unsigned>(attributes.maxThreadsPerBlock));
  config.attrs = &cluster;
  config.numAttrs = 1;
  int num_clusters = 0;
  HEDDLE_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&num_clusters, kernel, &config));
  return num_clusters > 0;
}

}  // namespace heddle::cuda
