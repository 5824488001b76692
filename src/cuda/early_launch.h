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

/// Launches kKernel on `device`, the current one, so that it may start while the kernel in front of it on the stream still runs: its
/// blocks are in place when that one ends. kKernel calls wait_for_predecessor() before it touches memory. Chips of 9.0 and later can
/// do so, but not with code made from PTX for 8.0, in which the wait is empty; so the kernel is asked.
template <auto kKernel, class Params>
void launch_early(int device, cudaLaunchConfig_t config, const Params& params) {
  static AnswerPerDevice waits;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  const bool can_wait = waits(device, [] {
    constexpr int kFirstWithWait = 90;
    cudaFuncAttributes kernel{};
    HEDDLE_CUDA_CHECK(cudaFuncGetAttributes(&kernel, kKernel));
    return kernel.ptxVersion >= kFirstWithWait && kernel.binaryVersion >= kFirstWithWait;
  });
  config.numAttrs = can_wait ? 1 : 0;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, params));
}
template <auto kKernel, class Params>
void launch_early(const ExecContext& ctx, dim3 grid, unsigned threads, const Params& params) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = ctx.stream;
  launch_early<kKernel>(ctx.device.index, config, params);
}

}  // namespace heddle::cuda
