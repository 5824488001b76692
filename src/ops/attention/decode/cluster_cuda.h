#pragma once

// A unit of a few segments that the blocks of a cluster have, a segment each: the states go through shared memory to the block that has
// segment 0, which merges them in ascending order.
// Every thread of a cluster meets the others twice: when the states are there, and when they have been read.

#include "cuda/cluster_cuda.h"

#include "ops/attention/decode/merge_cuda.h"

namespace heddle::cuda::attention::decode {

/// What a block does that has no segment.
__device__ inline void idle_in_cluster() {
  for (int i = 0; i < 2; ++i) {
    arrive_at_cluster();
    wait_for_cluster();
  }
}

/// Where the block's state of row tile `tile` lies: in its ring, when that is empty.
template <class Shape>
__device__ float4* cluster_state(DecodeShared<Shape>& s, int tile) {
  constexpr int kGroupsOfState = Shape::kDim / 16 + 1;
  static_assert(Shape::kRowTiles * kGroupsOfState * 32 * sizeof(float4) <= sizeof(s.ring));
  return reinterpret_cast<float4*>(&s.ring[0][0][0]) + tile * kGroupsOfState * 32 +
         threadIdx.x % 32;
}

/// Leaves the states of the warp's groups for the block of segment 0.
template <class Shape>
__device__ void put_cluster_states(const State<Shape::kGroups> (&states)[Shape::kRowTiles],
                                   DecodeShared<Shape>& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
    float4* const to = cluster_state(s, tile);
#pragma unroll
    for (int j = 0; j < Shape::kGroups; ++j) {
      to[(warp * Shape::kGroups + j) * 32] = states[tile].o[j];
    }
    if (warp == 0) to[Shape::kDim / 16 * 32] = states[tile].rows.packed();
  }
}

/// Merges what the blocks 1 to num_segments - 1 have left into the states of this one.
template <class Shape>
__device__ void take_cluster_states(uint32_t num_segments,
                                    State<Shape::kGroups> (&states)[Shape::kRowTiles],
                                    DecodeShared<Shape>& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
    const float4* const own = cluster_state(s, tile);
#pragma unroll 4
    for (uint32_t rank = 1; rank < num_segments; ++rank) {
      State<Shape::kGroups> state;
      state.rows = unpack(load_of_block(own + Shape::kDim / 16 * 32, rank));
#pragma unroll
      for (int j = 0; j < Shape::kGroups; ++j) {
        state.o[j] = load_of_block(own + (warp * Shape::kGroups + j) * 32, rank);
      }
      states[tile] = merge(states[tile], state);
    }
  }
}

}  // namespace heddle::cuda::attention::decode
