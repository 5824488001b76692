#pragma once

// Attention of few queries per sequence over a paged cache: batch_decode.
//
// A sequence is cut into segments by its own length, a segment into tiles of 16 keys that the warps of a block take in turn. A warp
// sums its tiles on tensor cores from a fresh softmax state, at the segment's end the states of the warps are merged in order, and the
// segments' states are merged in ascending order. Which block computes a segment depends on the batch, the sums do not: a block keeps
// the state of segments 0 to i of a unit itself, others leave theirs in memory, and the block that arrives last merges them. No block
// waits for another.

#include <cmath>
#include <type_traits>

#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/attention/attention_decode_merge_cuda.h"
#include "ops/attention/attention_decode_rotate_cuda.h"

namespace heddle::cuda::decode {

/// The place of vector number `place` of a run's rows in shared memory, where it comes from, and how many of its elements there are: none
/// behind the rows of the group or the end of a row. The query is one token.
struct RowVector {
  std::byte* to;
  const std::byte* from;
  int there;
};
template <class Shape>
__device__ RowVector row_vector(const AttentionKernelParams& p, const Run& run, int place,
                                std::byte* q) {
  constexpr int kVectors = Shape::kDim / 8;
  const int row = place / kVectors, vector = place % kVectors, r = run.first_row + row;
  const int64_t head = int64_t{run.kv_head} * p.group_size + r;
  return {q + vector_offset(row, vector, Shape::kRowBytes),
          p.q + (run.first_token * p.q_token + head * p.q_head + vector * 8) * 2,
          r < p.group_size ? p.head_dim - vector * 8 : 0};
}

/// Starts copying the rows of q of a run, which begin at multiples of 16 bytes, to shared memory: a group of copies.
template <class Shape>
__device__ void fetch_rows(const AttentionKernelParams& p, const Run& run, std::byte* q) {
  constexpr int kPlaces = Shape::kRows * Shape::kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kPlaces; i += Shape::kThreads) {
    const RowVector v = row_vector<Shape>(p, run, i, q);
    copy_async_16(v.to, v.from, v.there > 0 ? 16 : 0);
  }
}
/// The same at once, for rows that begin anywhere.
template <class Shape>
__device__ void load_rows(const AttentionKernelParams& p, const Run& run, std::byte* q) {
  constexpr int kPlaces = Shape::kRows * Shape::kDim / 8;
  if (p.is_q_aligned) {
#pragma unroll
    for (int i = 0; i < (kPlaces + Shape::kThreads - 1) / Shape::kThreads; ++i) {
      const int place = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
      if (place >= kPlaces) break;
      const RowVector v = row_vector<Shape>(p, run, place, q);
      *reinterpret_cast<uint4*>(v.to) =
          v.there > 0 ? *reinterpret_cast<const uint4*>(v.from) : uint4{};
    }
  } else {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kPlaces; i += Shape::kThreads) {
      const RowVector v = row_vector<Shape>(p, run, i, q);
      copy_elements(v.to, v.from, v.there);
    }
  }
}

/// The row's output from the state of all its keys.
template <class T>
__device__ void store_row(const AttentionKernelParams& p, const Run& run, int row, int quad,
                          const QuadState& state) {
  const int64_t token = run.first_token;
  const int64_t head = int64_t{run.kv_head} * p.group_size + run.first_row + row;
  const bool is_empty = state.row.sum == 0.0f;
  const float scale = is_empty ? 0.0f : 1.0f / state.row.sum;
  const float values[4] = {state.o.x * scale, state.o.y * scale, state.o.z * scale,
                           state.o.w * scale};
  T* to = reinterpret_cast<T*>(p.o) + token * p.o_token + head * p.o_head + quad * 4;
  if (p.is_q_aligned) {
    *reinterpret_cast<uint2*>(to) = {narrow_two<T>({values[0], values[1]}),
                                     narrow_two<T>({values[2], values[3]})};
  } else {
    for (int i = 0; i < 4 && quad * 4 + i < p.head_dim; ++i) to[i] = narrow<T>(values[i]);
  }
  if (quad == 0 && p.lse != nullptr) {
    p.lse[token * p.lse_token + head * p.lse_head] =
        is_empty ? -INFINITY : (state.row.max + log2f(state.row.sum)) * kLn2;
  }
}

/// Scores q . k become those of the softmax, in units of log2.
template <int kRowTiles>
__device__ void scale_scores(const AttentionKernelParams& p, float (&s)[kRowTiles][4]) {
  if (p.soft_cap > 0.0f) {
    const float scale = p.sm_scale / p.soft_cap, cap = p.soft_cap * kLog2E;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] = cap * tanhf(s[tile][i] * scale);
    }
  } else {
    const float scale = p.sm_scale * kLog2E;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] *= scale;
    }
  }
}

struct RotatingDecodeParams : DecodeParams {
  RotaryFrequencies rope;
};
template <int kDim, int kRowTiles, class Params>
using ShapeOf = DecodeShape<kDim, kRowTiles, std::is_same_v<Params, RotatingDecodeParams>>;

/// f(row, quad, i) for the groups of four of row tile `tile` that the thread has and that there are; i counts its groups.
template <class Shape, class F>
__device__ void for_each_quad(const AttentionKernelParams& p, int num_rows, int tile, F&& f) {
#pragma unroll
  for (int i = 0; i < Shape::kQuads; ++i) {
    const int place = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
    const int row = place / Shape::kQuadsOfRow, quad = place % Shape::kQuadsOfRow;
    if (row < Shape::kRowTile && tile * Shape::kRowTile + row < num_rows && quad * 4 < p.head_dim) {
      f(row, quad, tile * Shape::kQuads + i);
    }
    asm volatile("" ::
                     : "memory");  // one after the other: all at once would take too many registers
  }
}

/// Whether this block is the last of those that share a unit; its states are in memory then. All threads call.
template <class Shape>
__device__ bool arrive(const AttentionKernelParams& p, const Run& run, uint32_t owner,
                       DecodeShared<Shape>& s) {
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* counter = p.counters + owner;
    const uint32_t num = run.end_segment - run.first_segment;
    __threadfence();
    const bool is_last = atomicAdd(counter, num) + num == run.num_segments;
    if (is_last) {
      __threadfence();
      *counter = 0;
    }
    s.is_last = is_last;
  }
  __syncthreads();
  return s.is_last != 0;
}

/// A unit that several blocks share, whose states the block has left: merges all where it is the last.
template <class T, int kDim, class Shape>
__device__ __noinline__ void share_unit(const DecodeParams& p, const Run& run, int num_rows,
                                        uint32_t owner, const Partials<kDim>& partials,
                                        DecodeShared<Shape>& s) {
  // The counter is that of the block that has segment 0, which shares no other unit's beginning.
  if (!arrive(p, run, __shfl_sync(~0u, owner, 0), s)) return;
#pragma unroll 1
  for (int i = 0; i * Shape::kThreads < Shape::kRows * Shape::kQuadsOfRow; ++i) {
    const int place = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
    const int row = place / Shape::kQuadsOfRow, quad = place % Shape::kQuadsOfRow;
    const bool is_there = row < num_rows && quad * 4 < p.head_dim;
    const QuadState state =
        merge_segments<kDim>(partials, owner, run.num_segments, row, quad, is_there);
    if (is_there) store_row<T>(p, run, row, quad, state);
  }
}

// Grid: DecodeParams::num_blocks. Block b is number `block` in the order of the work, so that neighbours share a multiprocessor and few
// blocks do not. Block: DecodeShape::kThreads.
template <class T, int kDim, int kRowTiles, class Params>
__global__ void __launch_bounds__(ShapeOf<kDim, kRowTiles, Params>::kThreads,
                                  ShapeOf<kDim, kRowTiles, Params>::kBlocksPerSm)
    decode_kernel(const __grid_constant__ Params p) {
  using Shape = ShapeOf<kDim, kRowTiles, Params>;
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<DecodeShared<Shape>*>(memory);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t first = gridDim.x / p.blocks_per_sm;
  const uint32_t block = blockIdx.x % first * p.blocks_per_sm + blockIdx.x / first;
  const Partials<kDim> partials{p.partials, p.partial_rows};
  const int num_steps = (p.head_dim + 15) / 16;
  const uint32_t q = shared_address(s.q);
  if constexpr (Shape::kRotates) {
    for (int i = static_cast<int>(threadIdx.x); i < p.rope.num_pairs; i += Shape::kThreads) {
      s.frequency[i] = p.rope.frequency[i];
    }
  }

  WorkWalk<Shape::kWarps, Shape::kMaxRuns> walk(p, s.work, Shape::kRows, block, gridDim.x);
  while (walk.next()) {
    if (p.is_q_aligned) fetch_rows<Shape>(p, s.work.runs[0], s.q);  // ahead of all else
    commit_copies();
    TileCursor<kDim, Shape::kWarps> ahead(p, s.work.runs, s.work.num_runs);
    int filled = 0, used = 0;  // parts of the ring
    const auto fetch = [&] {
      ahead.fetch(s.ring[warp][filled]);
      filled = filled == Shape::kParts - 1 ? 0 : filled + 1;
    };
    // The next part that the warp has asked for; asks for another one.
    const auto next_part = [&] {
      __syncwarp();  // all lanes have read the part that is filled now
      fetch();
      wait_for_copies<Shape::kParts - 1>();
      __syncwarp();
      std::byte* part = s.ring[warp][used];
      used = used == Shape::kParts - 1 ? 0 : used + 1;
      return part;
    };
    for (int i = 0; i < Shape::kParts - 1; ++i) fetch();

#pragma unroll 1
    for (int r = 0; r < s.work.num_runs; ++r) {
      const Run& run = s.work.runs[r];
      if (r == 0 && p.is_q_aligned) {
        wait_for_copies<Shape::kParts - 1>();
      } else {
        load_rows<Shape>(p, run, s.q);
      }
      if constexpr (Shape::kRotates) {
        for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * Shape::kRowBytes / 16;
             i += Shape::kThreads) {
          reinterpret_cast<uint4*>(s.q_rest)[i] = {};
        }
        __syncthreads();
        rotate_rows<T>(p.rope, run.kv_len - 1, s);
      }
      const VisibleKeys<kRowTiles> visible(p, run);
      const int num_rows = min(run.q_len * p.group_size - run.first_row, Shape::kRows);
      QuadState states[kRowTiles * Shape::kQuads];
      __syncthreads();
      int position = TileCursor<kDim, Shape::kWarps>::first_position(run);
      int end = run.begin;
#pragma unroll 1
      for (uint32_t segment = run.first_segment; segment < run.end_segment; ++segment) {
        end = min(end + run.segment, run.end);
        TileSums<kDim, kRowTiles> sums;
        sums.clear();
#pragma unroll 1
        for (; position < end; position += Shape::kWarps * kTileKeys) {
          std::byte* keys = next_part();
          float weights[kRowTiles][4];
          if constexpr (Shape::kRotates) {
            RotatedScores<T, Shape>(s, p.rope.num_pairs, num_steps, lane)(keys, position, weights);
          } else {
            score_tile<T, kDim, kRowTiles>(shared_address(keys), q, num_steps, lane, weights);
          }
          scale_scores(p, weights);
          visible.hide(position, weights);
          weigh_tile(sums, weights);
          add_values<T>(shared_address(next_part()), num_steps, lane, weights, sums);
        }
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          __syncwarp();
          put_sums(sums, tile, num_steps, s.ring[warp][filled], s);
          __syncthreads();
          for_each_quad<Shape>(p, num_rows, tile, [&](int row, int quad, int i) {
            const QuadState state = gather_sums<kDim>(s, row, quad);
            if (run.first_segment != 0) {
              partials.put(block, segment, tile * Shape::kRowTile + row, quad, state, segment + 1);
            } else {
              states[i] = segment == 0 ? state : merge(states[i], state);
            }
          });
          __syncthreads();
        }
      }

      const bool is_whole = run.end_segment - run.first_segment == run.num_segments;
      if (run.first_segment == 0) {
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          for_each_quad<Shape>(p, num_rows, tile, [&](int row, int quad, int i) {
            const int r_of_unit = tile * Shape::kRowTile + row;
            if (is_whole) {
              store_row<T>(p, run, r_of_unit, quad, states[i]);
            } else {
              partials.put(block, 0, r_of_unit, quad, states[i], run.end_segment);
            }
          });
        }
      }
      if (!is_whole) {
        const auto segment = min(static_cast<uint32_t>(lane), run.num_segments - 1);
        const uint32_t owner = walk.owner(run.cost_before + segment * run.segment_cost);
        share_unit<T, kDim>(p, run, num_rows, owner, partials, s);
      }
      __syncthreads();  // s.q and s.is_last are free
    }
    wait_for_copies<0>();
    __syncthreads();
  }
}

template <class T, int kDim, int kRowTiles, class Params>
void run(Params p, const AttentionLaunch& launch) {
  using Shape = ShapeOf<kDim, kRowTiles, Params>;
  constexpr auto kKernel = decode_kernel<T, kDim, kRowTiles, Params>;
  constexpr int kBytes = sizeof(DecodeShared<Shape>);
  allow_shared_memory<kKernel, kBytes>(launch.device);
  kKernel<<<static_cast<unsigned>(p.num_blocks), Shape::kThreads, kBytes, launch.stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T, class Params>
void run_any(const Params& p, const AttentionLaunch& launch) {
  if (p.head_dim > 128) return run<T, 256, 1>(p, launch);
  if (p.head_dim <= 64) return run<T, 64, 2>(p, launch);
  p.group_size > 8 ? run<T, 128, 2>(p, launch) : run<T, 128, 1>(p, launch);
}

template <class T>
void run_call(const DecodeParams& p, const RotaryFrequencies* rope, const AttentionLaunch& launch) {
  if (rope == nullptr) return run_any<T>(p, launch);
  run_any<T>(RotatingDecodeParams{p, *rope}, launch);
}

}  // namespace heddle::cuda::decode
