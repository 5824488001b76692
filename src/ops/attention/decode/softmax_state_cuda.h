#pragma once

// The state of an online softmax in decode: how tiles are added to it, and how states are merged.
//
//   KeyTileSums      of a warp while it goes through its tiles of a segment, in registers
//   SoftmaxState     of a segment: the warps have merged theirs, each has a quarter of the elements
//   SegmentPartials  states in the workspace, where several blocks share a unit
//   cluster          states in shared memory, where the blocks of a cluster share one
//
// All have the layout of a product of tensor cores: of every 16 elements of the head, lane (g, q)
// has a group of four, elements g and g + 8 of rows 2q and 2q + 1. After merging, warp w has the
// groups w * kGroups, w * kGroups + 1, ...

#include "cuda/cluster_cuda.h"
#include "cuda/exp_cuda.h"

#include "ops/attention/decode/tile_cuda.h"

namespace heddle::cuda::attention::decode {

/// What a warp has summed of a segment: [row tile][row 2q, 2q + 1], and o [16 elements][row
/// tile][group]. `sum` is the lane's part: of the keys g and g + 8 of each tile.
template <int kDim, int kRowTiles>
struct KeyTileSums {
  float max[kRowTiles][2], sum[kRowTiles][2];
  float o[kDim / 16][kRowTiles][4];

  __device__ void clear() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      max[tile][0] = max[tile][1] = -INFINITY;
      sum[tile][0] = sum[tile][1] = 0.0f;
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
        o[j][tile][0] = o[j][tile][1] = o[j][tile][2] = o[j][tile][3] = 0.0f;
      }
    }
  }
};

__device__ inline uint32_t transpose_matrix(uint32_t m) {
  uint32_t t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(m));
  return t;
}

__device__ inline float max_of_keys(float v) {
  for (int distance = 4; distance < 32; distance *= 2) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, distance));
  }
  return v;
}
__device__ inline float sum_of_keys(float v) {
  for (int distance = 4; distance < 32; distance *= 2) v += __shfl_xor_sync(~0u, v, distance);
  return v;
}

/// Turns scores, [page tile][row tile], into weights 2^(s - max). Where a tile has a greater
/// maximum, the sums of earlier tiles shrink by the difference.
template <int kPageTiles, int kDim, int kRowTiles>
__device__ void weigh_tile(KeyTileSums<kDim, kRowTiles>& sums,
                           float (&s)[kPageTiles][kRowTiles][4]) {
  float shrink[kRowTiles][2];
  bool grows = false;
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float of_lane = fmaxf(s[0][tile][i], s[0][tile][i + 2]);
#pragma unroll
      for (int part = 1; part < kPageTiles; ++part) {
        of_lane = fmaxf(of_lane, fmaxf(s[part][tile][i], s[part][tile][i + 2]));
      }
      const float max = fmaxf(sums.max[tile][i], max_of_keys(of_lane));
      const float base = max == -INFINITY ? 0.0f : max;  // nothing seen: the weights are 0, not NaN
      shrink[tile][i] = exp2_fast(sums.max[tile][i] - base);
      grows |= max > sums.max[tile][i];
      sums.max[tile][i] = max;
#pragma unroll
      for (int part = 0; part < kPageTiles; ++part) {
        s[part][tile][i] = exp2_fast(s[part][tile][i] - base);
        s[part][tile][i + 2] = exp2_fast(s[part][tile][i + 2] - base);
      }
    }
  }
  if (__any_sync(~0u, grows)) {  // else the factors are 1, or the sums 0
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) sums.sum[tile][i] *= shrink[tile][i];
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.o[j][tile][i] *= shrink[tile][i % 2];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int part = 0; part < kPageTiles; ++part) {
        sums.sum[tile][i] += s[part][tile][i] + s[part][tile][i + 2];
      }
    }
  }
}

/// Adds the weighted values of a tile; the weights are rounded to T.
template <class T, int kDim, int kRowTiles>
__device__ void add_values(uint32_t values, int lane, const float (&weights)[kRowTiles][4],
                           KeyTileSums<kDim, kRowTiles>& sums) {
  uint32_t b[kRowTiles][2];
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
    b[tile][0] = transpose_matrix(narrow_two<T>({weights[tile][0], weights[tile][1]}));
    b[tile][1] = transpose_matrix(narrow_two<T>({weights[tile][2], weights[tile][3]}));
  }
  const uint32_t row =
      values + vector_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1, 2 * kDim);
#pragma unroll
  for (int j = 0; j < kDim / 16; ++j) {
    uint32_t a[4];
    load_matrices_transposed(a, row ^ (j << 5));
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(sums.o[j][tile], a, b[tile][0], b[tile][1]);
    }
  }
}

/// Of rows 2q, 2q + 1: the maximum of the scores, in units of log2, and the lane's part of the sum
/// of weights 2^(score - max).
struct RowStates {
  float max[2], sum[2];

  __device__ float4 packed() const { return {max[0], max[1], sum[0], sum[1]}; }
};
__device__ inline RowStates unpack(float4 v) { return {{v.x, v.y}, {v.z, v.w}}; }

/// The state of two rows: their maxima and sums, and kGroups groups of four weighted values, which
/// are not divided by the sum of weights yet.
template <int kGroups>
struct SoftmaxState {
  RowStates rows;
  float4 o[kGroups];
};

/// 2^(max - top), 0 where max is -inf.
__device__ inline float scale_to(float max, float top) {
  return max == -INFINITY ? 0.0f : exp2_fast(max - top);
}
/// sum += state, scaled to the maxima of sum. Those are at least as great as those of state.
template <int kGroups>
__device__ void add_state(SoftmaxState<kGroups>& sum, const SoftmaxState<kGroups>& state) {
  float scale[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scale[i] = scale_to(state.rows.max[i], sum.rows.max[i]);
    sum.rows.sum[i] = fmaf(state.rows.sum[i], scale[i], sum.rows.sum[i]);
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    sum.o[j].x = fmaf(state.o[j].x, scale[0], sum.o[j].x);
    sum.o[j].y = fmaf(state.o[j].y, scale[1], sum.o[j].y);
    sum.o[j].z = fmaf(state.o[j].z, scale[0], sum.o[j].z);
    sum.o[j].w = fmaf(state.o[j].w, scale[1], sum.o[j].w);
  }
}
/// An empty sum with the greater maxima of a and b.
template <int kGroups>
__device__ SoftmaxState<kGroups> empty_state(const RowStates& a, const RowStates& b) {
  SoftmaxState<kGroups> sum = {};
  sum.rows.max[0] = fmaxf(a.max[0], b.max[0]);
  sum.rows.max[1] = fmaxf(a.max[1], b.max[1]);
  return sum;
}
template <int kGroups>
__device__ SoftmaxState<kGroups> merge(const SoftmaxState<kGroups>& a,
                                       const SoftmaxState<kGroups>& b) {
  SoftmaxState<kGroups> sum = empty_state<kGroups>(a.rows, b.rows);
  add_state(sum, a);
  add_state(sum, b);
  return sum;
}

/// Writes the warp's sums of a row tile to `to`, in shared memory.
template <int kDim, int kRowTiles, class Shape>
__device__ void put_sums(const KeyTileSums<kDim, kRowTiles>& sums, int tile, std::byte* to,
                         DecodeShared<Shape>& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  auto* groups = reinterpret_cast<float4*>(to) + lane;
#pragma unroll
  for (int j = 0; j < kDim / 16; ++j) {
    const float(&o)[4] = sums.o[j][tile];
    groups[j * 32] = {o[0], o[1], o[2], o[3]};
  }
  s.scratch[warp].states[lane] = {sums.max[tile][0], sums.max[tile][1], sums.sum[tile][0],
                                  sums.sum[tile][1]};
  if (lane == 0) s.sums[warp] = static_cast<uint32_t>(to - &s.ring[0][0][0]);
}

/// Merges the sums of the four warps, for the groups of this warp.
template <class Shape>
__device__ SoftmaxState<Shape::kGroups> gather_sums(const DecodeShared<Shape>& s) {
  constexpr int kGroups = Shape::kGroups;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  RowStates rows[Shape::kWarps];
#pragma unroll
  for (int w = 0; w < Shape::kWarps; ++w) rows[w] = unpack(s.scratch[w].states[lane]);
  SoftmaxState<kGroups> sum = empty_state<kGroups>(rows[0], rows[1]);
#pragma unroll
  for (int w = 2; w < Shape::kWarps; ++w) {
    sum.rows.max[0] = fmaxf(sum.rows.max[0], rows[w].max[0]);
    sum.rows.max[1] = fmaxf(sum.rows.max[1], rows[w].max[1]);
  }
#pragma unroll
  for (int w = 0; w < Shape::kWarps; ++w) {
    const auto* groups =
        reinterpret_cast<const float4*>(&s.ring[0][0][0] + s.sums[w]) + warp * kGroups * 32 + lane;
    SoftmaxState<kGroups> state;
    state.rows = rows[w];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) state.o[j] = groups[j * 32];
    add_state(sum, state);
  }
  return sum;
}

/// States in the workspace, for the block that merges a shared unit:
///   [block][segment][row tile][kDim / 16 + 1][8][num_pairs] groups of four floats
/// The last of the kDim / 16 + 1 groups has the maxima and sums of the rows. Lanes whose rows do
/// not exist neither put nor fetch.
template <class Shape>
struct SegmentPartials {
  static constexpr int kGroups = Shape::kGroups;
  float4* data;
  int num_pairs;  // of rows in a row tile, at most 4

  [[nodiscard]] __device__ bool has_rows() const {
    return static_cast<int>(threadIdx.x) % 4 < num_pairs;
  }
  [[nodiscard]] __device__ float4* group(uint32_t block, int segment, int tile) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int state = (static_cast<int>(block) * kMaxSegments + segment) * Shape::kRowTiles + tile;
    return data + ((state * (Shape::kDim / 16 + 1) * 8 + lane / 4) * num_pairs + lane % 4);
  }
  __device__ void put(uint32_t block, int segment, int tile,
                      const SoftmaxState<kGroups>& state) const {
    if (!has_rows()) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float4* to = group(block, segment, tile);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      __stcg(to + (warp * kGroups + j) * 8 * num_pairs, state.o[j]);
    }
    if (warp == 0) __stcg(to + Shape::kDim / 16 * 8 * num_pairs, state.rows.packed());
  }
  /// Starts to copy the lane's groups of a state to shared memory from `place` on, in the warp's
  /// shared memory.
  __device__ void fetch(uint32_t block, int segment, int tile, float4* place) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const float4* from = group(block, segment, tile);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      copy_async_16(place + j * 8 * num_pairs, from + (warp * kGroups + j) * 8 * num_pairs, 16);
    }
    copy_async_16(place + kGroups * 8 * num_pairs, from + Shape::kDim / 16 * 8 * num_pairs, 16);
  }
  /// The state that fetch() has copied to `place`.
  [[nodiscard]] __device__ SoftmaxState<kGroups> take(const float4* place) const {
    SoftmaxState<kGroups> state;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) state.o[j] = place[j * 8 * num_pairs];
    state.rows = unpack(place[kGroups * 8 * num_pairs]);
    return state;
  }
  /// Groups of a state that a warp fetches.
  [[nodiscard]] __device__ int size() const { return (kGroups + 1) * 8 * num_pairs; }
};

/// Merges the states of all segments of a unit in ascending order. block_of: in lane s, the block
/// of segment s. The block of segment 0 has left one state for all of its segments. States come
/// through `place`, as many at a time as fit. All lanes call.
template <class Shape>
__device__ SoftmaxState<Shape::kGroups> merge_segments(const SegmentPartials<Shape>& partials,
                                                       uint32_t block_of, uint32_t num_segments,
                                                       int tile, const MergePlace& place) {
  static_assert((Shape::kGroups + 1) * 32 * sizeof(float4) <= Shape::kStageBytes);
  const int lane = static_cast<int>(threadIdx.x) % 32, num = static_cast<int>(num_segments);
  const uint32_t first_block = __shfl_sync(~0u, block_of, 0);
  const int of_first = __popc(__ballot_sync(~0u, block_of == first_block && lane < num));
  const int num_states = num - of_first + 1;  // the first stands for all segments of its block
  const int size = partials.size(), at_once = place.size / size;
  float4* const own = place.data + lane / 4 * partials.num_pairs + lane % 4;
  SoftmaxState<Shape::kGroups> sum = {{{-INFINITY, -INFINITY}, {}}, {}};
#pragma unroll 1
  for (int begin = 0; begin < num_states; begin += at_once) {
    const int count = min(at_once, num_states - begin);
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const int segment = begin + i == 0 ? 0 : of_first + begin + i - 1;
      const uint32_t block = __shfl_sync(~0u, block_of, segment);
      if (partials.has_rows()) partials.fetch(block, segment, tile, own + i * size);
    }
    commit_copies();
    wait_for_copies<0>();
    if (!partials.has_rows()) continue;
#pragma unroll 4
    for (int i = 0; i < count; ++i) sum = merge(sum, partials.take(own + i * size));
  }
  return sum;
}

// A unit of a few segments whose blocks form a cluster, one segment each. The states go through
// shared memory to the block that has segment 0, which merges them in ascending order. Every thread
// of a cluster meets the others twice: when the states are written, and when they have been read.

/// What a block of a cluster does that has no segment.
__device__ inline void idle_in_cluster() {
  for (int i = 0; i < 2; ++i) {
    arrive_at_cluster();
    wait_for_cluster();
  }
}

/// Where a block leaves its state of row tile `tile`: in its ring, which is empty by then.
template <class Shape>
__device__ float4* cluster_state(DecodeShared<Shape>& s, int tile) {
  constexpr int kGroupsOfState = Shape::kDim / 16 + 1;
  static_assert(Shape::kRowTiles * kGroupsOfState * 32 * sizeof(float4) <= sizeof(s.ring));
  return reinterpret_cast<float4*>(&s.ring[0][0][0]) + tile * kGroupsOfState * 32 +
         threadIdx.x % 32;
}

/// Leaves the states of the warp's groups for the block of segment 0.
template <class Shape>
__device__ void put_cluster_states(const SoftmaxState<Shape::kGroups> (&states)[Shape::kRowTiles],
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
                                    SoftmaxState<Shape::kGroups> (&states)[Shape::kRowTiles],
                                    DecodeShared<Shape>& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
    const float4* const own = cluster_state(s, tile);
#pragma unroll 4
    for (uint32_t rank = 1; rank < num_segments; ++rank) {
      SoftmaxState<Shape::kGroups> state;
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
