#pragma once

#include <cstddef>

#include "cuda/memory_cuda.h"

#include "ops/linear_site/decode/shared_layout.h"

namespace heddle::cuda::linear_site {

/// What a warp that works for adapters needs, on its way into a block: some stages of shared memory
/// of its own, and as many pieces of its work in flight. So no register waits for memory.
class CopyRing {
 public:
  __device__ CopyRing(std::byte* stages, int num_stages) : stages_(stages), num_(num_stages) {}

  /// The first pieces: calls fill(stage) for each, which starts its copies.
  template <class Fill>
  __device__ void begin(Fill&& fill) {
    at_ = 0;
#pragma unroll 1
    for (int i = 0; i < num_; ++i) {
      fill(stages_ + i * kExpandStageBytes);
      commit_copies();
    }
  }
  /// Waits for the next piece, and returns where it lies.
  [[nodiscard]] __device__ std::byte* wait() const {
    static_assert(kMaxAdapterStages == 2);
    if (num_ == 1) {
      wait_for_copies<0>();
    } else {
      wait_for_copies<1>();
    }
    __syncwarp();
    return stages_ + at_ * kExpandStageBytes;
  }
  /// That piece has been used: fill(stage) requests the one that takes its place.
  template <class Fill>
  __device__ void release(Fill&& fill) {
    __syncwarp();
    fill(stages_ + at_ * kExpandStageBytes);
    commit_copies();
    at_ = at_ + 1 == num_ ? 0 : at_ + 1;
  }

 private:
  std::byte* stages_;
  int num_, at_ = 0;
};

}  // namespace heddle::cuda::linear_site
