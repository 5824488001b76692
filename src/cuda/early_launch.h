#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/check.h"

#include "heddle/core/context.h"

namespace heddle::cuda {

/// The answer to a question about the current device, which is asked once for each of the first 64.
class AnswerPerDevice {
 public:
  template <class Ask>
  bool operator()(int device, Ask&& ask) {
    const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
    if ((known_[1] & bit) != 0) return true;
    if ((known_[0] & bit) != 0) return false;
    const bool answer = ask();
    known_[answer] |= bit;
    return answer;
  }

 private:
  std::array<std::atomic<uint64_t>, 2> known_{};  // no, yes
};

/// Whether kKernel can be launched early on `device`, the current one. Chips of 9.0 and later can
/// do so, but not with code made from PTX for 8.0, in which the wait is empty; so the kernel is
/// asked.
template <auto kKernel>
[[nodiscard]] bool can_start_early(int device) {
  static AnswerPerDevice waits;
  return waits(device, [] {
    constexpr int kFirstWithWait = 90;
    cudaFuncAttributes kernel{};
    HEDDLE_CUDA_CHECK(cudaFuncGetAttributes(&kernel, kKernel));
    return kernel.ptxVersion >= kFirstWithWait && kernel.binaryVersion >= kFirstWithWait;
  });
}

/// What an early launch in clusters of so many blocks asks of the chip. The chip balances a
/// cluster's blocks: by default clusters of two waited while a kernel of another stream held most
/// of it.
[[nodiscard]] inline std::array<cudaLaunchAttribute, 3> cluster_attributes(unsigned cluster_size) {
  std::array<cudaLaunchAttribute, 3> attributes{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster_size, 1, 1};
  attributes[2].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
  attributes[2].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicyLoadBalancing;
  return attributes;
}

/// launch_early() in clusters of so many blocks, which divide the grid; where can_start_early() is
/// false, as blocks of their own.
template <auto kKernel, class... Params>
void launch_clusters_early(int device, cudaLaunchConfig_t config, unsigned cluster_size,
                           const Params&... params) {
  auto attributes = cluster_attributes(cluster_size);
  config.attrs = attributes.data();
  config.numAttrs = !can_start_early<kKernel>(device) ? 0 : cluster_size > 1 ? 3 : 1;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, params...));
}

/// Launches kKernel on `device`, the current one, so that it may start while the previous kernel
/// of the stream still runs: its blocks are in place when that one ends. kKernel calls
/// wait_for_predecessor() before it touches memory, or takes what it has read before for no more
/// than a guess.
template <auto kKernel, class... Params>
void launch_early(int device, cudaLaunchConfig_t config, const Params&... params) {
  launch_clusters_early<kKernel>(device, config, 1, params...);
}
template <auto kKernel, class... Params>
void launch_early(const ExecContext& ctx, dim3 grid, unsigned threads, const Params&... params) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = ctx.stream;
  launch_early<kKernel>(ctx.device.index, config, params...);
}

}  // namespace heddle::cuda
