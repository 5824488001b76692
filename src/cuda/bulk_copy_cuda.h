#pragma once

#include <cstdint>

#include "cuda/memory_cuda.h"

namespace heddle::cuda {

// Copies of whole pieces by the copy engine, and barriers in shared memory that count their bytes:
// compute capability 9.0 on. Pieces and both their addresses are multiples of 16 bytes.

/// A barrier whose phases end when so many arrivals and all bytes that were announced have come.
struct alignas(8) PhaseBarrier {
  uint64_t state;

  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals));
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  /// An arrival at the barrier that lies in block `rank` of the cluster where this one lies here.
  /// It says that this thread has read; what it wrote is not shown to other blocks, for which it
  /// would have to wait for all of its writes to memory.
  __device__ void arrive_in_block(uint32_t rank) {
    asm volatile(
        "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(shared_address(this)),
        "r"(rank)
        : "memory");
  }
  /// One arrival, and `bytes` that copies will bring.
  __device__ void arrive_and_expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }
  /// One arrival once the copies that this thread has started (copy_async_16) have come. Those who
  /// wait and whose products read what they brought call show_to_copy_engine() in between.
  __device__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(this))
                 : "memory");
  }
  /// Waits for the end of the phase of this parity; phases begin with 0, and that before them, of
  /// parity 1, has ended.
  __device__ void wait(uint32_t parity) {
    uint32_t has_ended = 0;
    while (has_ended == 0) {
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
          : "=r"(has_ended)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    }
  }
};

/// Shows what this thread did with shared memory, barriers included, to the copy engine, which
/// waits for a later signal of it.
__device__ inline void show_to_copy_engine() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Shows what this thread can see of global memory to copies that it starts from there.
__device__ inline void show_memory_to_copy_engine() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Shows barriers that this thread has initialised to the other blocks of the cluster, which wait
/// for a signal of it (cluster_cuda.h).
__device__ inline void show_barriers_to_cluster() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Whether this lane is the one that acts for all of its warp, always the same one. The compiler
/// knows that there is only one, and issues its copies one after the other; those of a lane picked
/// by its number go through a loop over lanes.
[[nodiscard]] __device__ inline bool is_elected() {
  uint32_t elected = 0;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}"
               : "=r"(elected)::"memory");
  return elected != 0;
}

/// Starts copying into shared memory; `barrier` counts the bytes.
__device__ inline void bulk_load(void* to, const void* from, uint32_t bytes,
                                 PhaseBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}

/// Starts copying out of shared memory. commit_bulk_stores closes a group of them;
/// wait_for_bulk_reads waits until no group of this thread still reads shared memory,
/// wait_for_bulk_stores until all have ended.
__device__ inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void commit_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void wait_for_bulk_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace heddle::cuda
