#pragma once

#include <cstdint>

#include "cuda/bulk_copy_cuda.h"
#include <cuda.h>

namespace heddle::cuda {

// Copies of boxes of a matrix by the copy engine, which a tensor map (tensor_map.h) describes:
// compute capability 9.0 on. The map is a parameter of the kernel, __grid_constant__.

/// How long the L2 cache keeps what a copy reads.
enum class CachePriority : uint64_t {
  kEvictFirst = 0x12f0000000000000,
  kEvictLast = 0x14f0000000000000,
};

__device__ inline void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}

/// Starts copying the box whose first element is (row, column) into shared memory, zeros for what
/// lies outside of the matrix; `barrier` counts the bytes of the whole box.
__device__ inline void tensor_load(void* to, const CUtensorMap& map, int row, int column,
                                   PhaseBarrier& barrier, CachePriority priority) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier)), "r"(column), "r"(row),
      "l"(static_cast<uint64_t>(priority))
      : "memory");
}

}  // namespace heddle::cuda
