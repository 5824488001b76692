#pragma once

#include <cstdint>

#include "cuda/bulk_copy_cuda.h"

namespace heddle::cuda {

// The pipeline of the kernels for compute capability 9.0: a ring of stages in shared memory, and
// warps with roles, all of which walk it in the same order.
//
//               full                          done
//   load     ---------->  multiply         ---------->  finish
//   one warp <----------  the other warps               writes what is left in the stage
//               empty
//
// Without the role finish, multiply frees the stages and writes its sums itself.
//
// load starts copies into the next stage once it is empty; the copy engine arrives at `full` with
// the last byte. multiply waits for `full`, and frees the stage when its products have been read:
// products of warpgroups still read the previous stage while those of this one are started.

/// Where a warp is in a ring: the stage, and the parity of the phase that it waits for there.
struct RingPlace {
  int stage = 0;
  uint32_t parity;

  /// load begins with stages that are empty, all others with stages that are not full yet.
  [[nodiscard]] static __device__ RingPlace of_load() { return {0, 1}; }
  [[nodiscard]] static __device__ RingPlace of_multiply() { return {0, 0}; }
  [[nodiscard]] static __device__ RingPlace of_finish() { return {0, 0}; }

  __device__ void advance(int num_stages) {
    if (++stage < num_stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// The barriers of up to kMaxStages stages, in shared memory.
template <int kMaxStages>
struct Ring {
  PhaseBarrier full[kMaxStages], empty[kMaxStages];

  /// By one thread. num_frees: arrivals that free a stage.
  __device__ void init(int num_frees) {
    for (int i = 0; i < kMaxStages; ++i) {
      full[i].init(1);
      empty[i].init(num_frees);
    }
  }
  /// load: waits until the stage is empty.
  __device__ void wait_empty(const RingPlace& at) { empty[at.stage].wait(at.parity); }
  /// load: so many bytes will be copied into the stage; the copies arrive at this barrier.
  __device__ PhaseBarrier& expect(const RingPlace& at, uint32_t bytes) {
    full[at.stage].arrive_and_expect(bytes);
    return full[at.stage];
  }
  /// multiply: waits until all bytes of the stage have arrived.
  __device__ void wait_full(const RingPlace& at) { full[at.stage].wait(at.parity); }
};

}  // namespace heddle::cuda
