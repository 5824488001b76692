#pragma once

#include <cstdint>

#include "cuda/bulk_copy_cuda.h"
#include <cuda.h>

namespace heddle::cuda {

// Copies of boxes of a matrix by the copy engine, which a tensor map (tensor_map.h) describes:
// compute capability 9.0 on. The map is a parameter of the kernel, __grid_constant__.

/// How long the L2 cache keeps what a copy reads.
enum class CachePriority : uint64_t {
  kNormal = 0x1000000000000000,
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

/// The same into each block of the cluster whose bit of `blocks` is set: to the same address of its
/// shared memory, counted by its own barrier at the same address as `barrier`.
__device__ inline void tensor_load_to_blocks(void* to, const CUtensorMap& map, int row, int column,
                                             PhaseBarrier& barrier, uint16_t blocks,
                                             CachePriority priority) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier)), "r"(column), "r"(row),
      "h"(blocks), "l"(static_cast<uint64_t>(priority))
      : "memory");
}

/// Writes four 8 x 8 matrices of 16-bit elements to shared memory; lanes 8 i ... 8 i + 7 give the
/// addresses of the rows of matrix i. Lane (g, q) = (lane / 4, lane % 4) has of each row g, columns
/// 2 q and 2 q + 1.
__device__ inline void store_matrices(uint32_t address, const uint32_t* m) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

/// Starts copying a box out of shared memory, without what lies outside of the matrix. Groups of
/// such copies are those of bulk_store (bulk_copy_cuda.h).
__device__ inline void tensor_store(const CUtensorMap& map, int row, int column, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(&map)),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
}

}  // namespace heddle::cuda
