#pragma once

#include <cmath>

#include "ops/linear_site/decode/adapter_ring_cuda.h"
#include "ops/linear_site/decode/adapter_shared_cuda.h"
#include "ops/lora_device/expand_product_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"
#include "ops/lora_device/shrink_tile_cuda.h"

namespace heddle::cuda::linear_site {

using lora::kNoSum;
using lora::kProductTileRows;
using lora::kTileRanks;
using lora::lane_g;
using lora::lane_q;

constexpr int kLoraThreads = 32 * kLoraWarps;

/// One of the warps of a block that work for adapters: what all of its work needs.
struct AdapterWarp {
  const DecodeParams& p;
  const DecodeAdapters& c;
  const AdapterShared& s;
  int index;  // of the kLoraWarps

  __device__ AdapterWarp(const DecodeParams& params, const AdapterShared& shared, int warp)
      : p(params), c(params.adapters), s(shared), index(warp) {}

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] __device__ int thread() const { return index * 32 + lane(); }
  /// Waits for all of the block's warps of this kind.
  static __device__ void meet() {
    __syncwarp();
    asm volatile("bar.sync 2, %0;" ::"n"(kLoraThreads) : "memory");
  }
  /// [row of partial sums][rank of 16]
  [[nodiscard]] const __device__ float* partials_of(int slice, int num_partials) const {
    return c.partials + int64_t{slice * c.num_chains} * num_partials * kTileRanks;
  }
};

}  // namespace heddle::cuda::linear_site
