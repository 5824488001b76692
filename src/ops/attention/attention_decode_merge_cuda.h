#pragma once

// Merging the softmax states of warps, segments and blocks. All threads of a block share the sums of a row tile: thread t has the groups of
// four t, t + kThreads, ...

#include "cuda/exp_cuda.h"

#include "ops/attention/attention_decode_shape_cuda.h"
#include "ops/attention/attention_decode_tile_cuda.h"

namespace heddle::cuda {

/// Four sums of a row, not divided by the sum of weights.
struct QuadState {
  RowState row;
  float4 o;
};

/// 2^(max - top), 0 where max is -inf.
__device__ inline float scale_to(float max, float top) {
  return max == -INFINITY ? 0.0f : exp2_fast(max - top);
}
/// sum += state, brought to the maximum of sum, which is no less than that of state.
__device__ inline void add_state(QuadState& sum, const QuadState& state) {
  const float scale = scale_to(state.row.max, sum.row.max);
  sum.row.sum = fmaf(state.row.sum, scale, sum.row.sum);
  sum.o.x = fmaf(state.o.x, scale, sum.o.x);
  sum.o.y = fmaf(state.o.y, scale, sum.o.y);
  sum.o.z = fmaf(state.o.z, scale, sum.o.z);
  sum.o.w = fmaf(state.o.w, scale, sum.o.w);
}
__device__ inline QuadState merge(const QuadState& a, const QuadState& b) {
  QuadState sum{{fmaxf(a.row.max, b.row.max), 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
  add_state(sum, a);
  add_state(sum, b);
  return sum;
}

/// Group of four `quad` of a row among the sums of a warp: exchanged by the row's number, so that the warp's lanes meet in no bank.
template <int kDim>
__device__ int quad_place(int row, int quad) {
  return row * (kDim / 4) + (quad ^ (row / 2 % 4 * 2));
}

/// The sums of a row tile of the warp to `to` in shared memory.
template <int kDim, int kRowTiles, class Shape>
__device__ void put_sums(const TileSums<kDim, kRowTiles>& sums, int tile, int num_steps,
                         std::byte* to, DecodeShared<Shape>& s) {
  int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  forget(lane);
  auto* floats = reinterpret_cast<float*>(to);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane % 4 * 2 + i;
    const float sum = sum_of_keys(sums.sum[tile][i]);
    if (lane < 4) s.states[warp][row] = {sums.max[tile][i], sum};
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      if (j >= num_steps) break;
      const int element = j * 16 + lane / 4;
      floats[quad_place<kDim>(row, element / 4) * 4 + element % 4] = sums.o[j][tile][i];
      floats[quad_place<kDim>(row, element / 4 + 2) * 4 + element % 4] = sums.o[j][tile][i + 2];
    }
  }
  if (lane == 0) s.sums[warp] = static_cast<uint32_t>(to - &s.ring[0][0][0]);
}

/// The state of a segment from those of the warps.
template <int kDim, class Shape>
__device__ QuadState gather_sums(const DecodeShared<Shape>& s, int row, int quad) {
  QuadState sum{{s.states[0][row].max, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
  for (int w = 1; w < Shape::kWarps; ++w) sum.row.max = fmaxf(sum.row.max, s.states[w][row].max);
#pragma unroll 4
  for (int w = 0; w < Shape::kWarps; ++w) {
    const auto* quads = reinterpret_cast<const float4*>(&s.ring[0][0][0] + s.sums[w]);
    add_state(sum, {s.states[w][row], quads[quad_place<kDim>(row, quad)]});
  }
  return sum;
}

/// The states that blocks leave for the one that merges a shared unit: [block][segment][row][kDim + 4] floats, the sums, then maximum,
/// sum of weights, and in the state of segment 0 the first segment that is not part of it.
template <int kDim>
struct Partials {
  static constexpr int kWidth = kDim + 4;
  float* data;
  int num_rows;

  [[nodiscard]] __device__ float* row(uint32_t block, uint32_t segment, int row) const {
    return data + ((int64_t{block} * kMaxSegments + segment) * num_rows + row) * kWidth;
  }
  __device__ void put(uint32_t block, uint32_t segment, int r, int quad, const QuadState& state,
                      uint32_t end_segment) const {
    float* to = row(block, segment, r);
    __stcg(reinterpret_cast<float4*>(to) + quad, state.o);
    if (quad != 0) return;
    __stcg(reinterpret_cast<float4*>(to + kDim),
           float4{state.row.max, state.row.sum, __uint_as_float(end_segment), 0.0f});
  }
};

/// Merges the states of all segments of a unit in ascending order; owner: the block of segment s in lane s. All lanes call; is_there: for
/// a group of four that there is.
template <int kDim>
__device__ QuadState merge_segments(const Partials<kDim>& partials, uint32_t owner,
                                    uint32_t num_segments, int row, int quad, bool is_there) {
  constexpr uint32_t kAtOnce = 8;
  QuadState sum{{-INFINITY, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
  uint32_t end = 0;
#pragma unroll 1
  for (uint32_t first = 0; first < num_segments; first += kAtOnce) {
    QuadState states[kAtOnce];
    uint32_t ends[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t block = __shfl_sync(~0u, owner, static_cast<int>(first + i));
      if (first + i >= num_segments || !is_there) continue;
      const float* from = partials.row(block, first + i, row);
      const float4 rest = __ldcg(reinterpret_cast<const float4*>(from + kDim));
      states[i] = {{rest.x, rest.y}, __ldcg(reinterpret_cast<const float4*>(from) + quad)};
      ends[i] = __float_as_uint(rest.z);
    }
    if (!is_there) continue;
    if (first == 0) end = ends[0];
    if (first == 0) sum = states[0];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i >= end && first + i < num_segments) sum = merge(sum, states[i]);
    }
  }
  return sum;
}

}  // namespace heddle::cuda
