#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/check.h"

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

/// Launches kKernel on `device`, the current one, so that it may start while the kernel in front of it on the stream still runs: its
/// blocks are in place when that one ends. kKernel calls wait_for_predecessor() before it touches memory. Chips of 9.0 and later can
/// do so, but not with code made from PTX for 8.0, in which the wait is empty; so the kernel is asked.
template <auto kKernel, class Params>
void launch_early(int device, cudaLaunchConfig_t config, const Params& params,
                  unsigned cluster_size = 1) {
  static AnswerPerDevice waits;
  std::array<cudaLaunchAttribute, 2> attributes{};
  config.attrs = attributes.data();
  config.numAttrs = 0;
  if (waits(device, [] {
        constexpr int kFirstWithWait = 90;
        cudaFuncAttributes kernel{};
        HEDDLE_CUDA_CHECK(cudaFuncGetAttributes(&kernel, kKernel));
        return kernel.ptxVersion >= kFirstWithWait && kernel.binaryVersion >= kFirstWithWait;
      })) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster_size > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {cluster_size, 1, 1};
  }
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, params));
}

/// Whether the current device, or the part of it that is there, has room for a cluster of `size` blocks of a kernel, as large as its
/// launch bounds say; more than 8 are asked for.
[[nodiscard]] bool has_room_for_cluster(const void* kernel, unsigned size);

/// The same in clusters of up to kMaxSize blocks; false where there is no room for one of them.
template <auto kKernel, unsigned kMaxSize, class Params>
bool launch_early_in_clusters(int device, const cudaLaunchConfig_t& config, unsigned cluster_size,
                              const Params& params) {
  static AnswerPerDevice has_room;
  const auto* kernel = reinterpret_cast<const void*>(kKernel);
  if (!has_room(device, [=] { return has_room_for_cluster(kernel, kMaxSize); })) return false;
  launch_early<kKernel>(device, config, params, cluster_size);
  return true;
}

}  // namespace heddle::cuda
