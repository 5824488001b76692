#pragma once

#include "cuda/index_cuda.h"
#include "cuda/warp.h"

#include "ops/speculation/call/rewind_kv_cache_kernels.h"
#include "ops/speculation/shared/select_kernel.h"

namespace heddle::cuda::speculation {

/// a / b, out of the way of kernels that hardly ever divide.
template <class Int>
[[nodiscard]] constexpr __noinline__ Int general_quotient(Int a, Int b) {
  return a / b;
}
struct GeneralQuotient {
  template <class Int>
  [[nodiscard]] constexpr Int operator()(Int a, Int b) const {
    return general_quotient<Int>(a, b);
  }
};

/// Prefetches the ids about the last block of request i, which its rewind and its next step read.
__device__ inline void touch_ids(const KvBlocks& kv, int64_t i, const KvRow& row) {
  if (row.count < 1 || kv.max_blocks < 1) return;
  touch(kv.ids.row(i).address((row.count < kv.max_blocks ? row.count : kv.max_blocks) - 1));
}

/// Sums over the threads of a block in the order of the threads, one sum a tile.
class BlockSums {
 public:
  /// Shared memory: two sets of totals, so that one barrier a tile suffices.
  struct Shared {
    int64_t warp_totals[2][kListThreads / 32];
  };
  __device__ explicit BlockSums(Shared& shared) : shared_(shared) {}

  /// The sum of `n` over all threads before this one in all tiles so far. Every thread of the block
  /// calls it.
  [[nodiscard]] __device__ int64_t before(int64_t n) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    int64_t sum = n;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int64_t below = __shfl_up_sync(kAllLanes, sum, d);
      if (lane >= d) sum += below;
    }
    int64_t(&totals)[kListThreads / 32] = shared_.warp_totals[tile_ ^= 1];
    if (lane == 31) totals[warp] = sum;
    __syncthreads();
    int64_t place = total_ + sum - n;
    const int num_warps = static_cast<int>(blockDim.x / 32);
    for (int w = 0; w < num_warps; ++w) {
      const int64_t of_warp = totals[w];
      if (w < warp) place += of_warp;
      total_ += of_warp;
    }
    return place;
  }
  /// Of all tiles so far.
  [[nodiscard]] __device__ int64_t total() const { return total_; }

 private:
  Shared& shared_;
  int64_t total_ = 0;
  int tile_ = 0;
};

}  // namespace heddle::cuda::speculation
