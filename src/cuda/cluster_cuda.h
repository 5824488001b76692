#pragma once

#include <cstdint>

#include "cuda/bulk_copy_cuda.h"
#include "cuda/memory_cuda.h"

namespace heddle::cuda {

// Clusters of blocks (early_launch.h), which run at once and can read each other's shared memory:
// compute capability 9.0 on. In other code a block is a cluster of its own. Source: PTX ISA,
// "Cluster-level barriers" and "mapa".

/// The number of blocks in this block's cluster, and which of them this is.
[[nodiscard]] __device__ inline uint32_t cluster_size() {
  uint32_t size = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  return size;
}
[[nodiscard]] __device__ inline uint32_t cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

/// Tells the cluster that this thread is here and what it did before has been done; waits until all
/// threads of the cluster have told so. Threads tell and wait in turn, each as often as every
/// other.
__device__ inline void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
/// The same by a thread before whose end the others only read.
__device__ inline void leave_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// The 16 bytes that lie in block `rank` of the cluster where `own` lies in this one.
[[nodiscard]] __device__ inline float4 load_of_block(const float4* own, uint32_t rank) {
  float4 v{};
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
#endif
  return v;
}

/// Stores a value in block `rank` of the cluster where `own` lies in this one, and has that block's
/// barrier count its bytes when it has arrived.
__device__ inline void send_to_block(float* own, float value, PhaseBarrier& barrier,
                                     uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      "  .reg .b32 to, barrier;\n"
      "  mapa.shared::cluster.u32 to, %0, %3;\n"
      "  mapa.shared::cluster.u32 barrier, %2, %3;\n"
      "  st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %1, [barrier];\n"
      "}" ::"r"(shared_address(own)),
      "r"(__float_as_uint(value)), "r"(shared_address(&barrier)), "r"(rank)
      : "memory");
#endif
}

}  // namespace heddle::cuda
