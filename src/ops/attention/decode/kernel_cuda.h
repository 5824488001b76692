#pragma once

// The portable kernel of batch_decode: attention of one query a sequence over a paged cache.
//
//   sequence   keys 0 ... kv_len - 1 of one sequence
//     unit     a kv head of it, with up to 8, 16 or 32 of the rows of q that share its keys
//       segment  a run of its keys, at most 16 of them; how long follows from kv_len alone
//         tile     16 keys; the 4 warps of a block take tiles w, w + 4, w + 8, ...
//           warp     two products of tensor cores:
//
//                     S^T = K Q^T                          O^T = V^T P^T
//                     8 rows of q                          8 rows of q
//                   +-------------+                      +-------------+
//         16 keys   | lane (g, q) |      16 elements     | lane (g, q) |
//         of a tile | g, g + 8    |      of the head     | g, g + 8    |
//                   | x 2q, 2q + 1|                      | x 2q, 2q + 1|
//                   +-------------+                      +-------------+
//
//           lane     (g, q) = (lane / 4, lane % 4) holds two keys, or elements, of two rows
//
// The sums are merged from the bottom up, always in the same order: the four warps of a block at
// the end of a segment, then the segments of a unit in ascending order. Which block computes a
// segment depends on the batch, but what is summed with what does not. A block that begins with
// segment 0 of a unit keeps its state in registers. Others leave theirs in the workspace, and the
// block that arrives last merges them. No block waits for another, except in a cluster.
//
// schedule_cuda.h says which block has which segments, tile_cuda.h brings keys and values and makes
// scores, query_rows_cuda.h has the rows of q and which keys each sees, softmax_state_cuda.h
// weights, sums and merging, rope_scores_cuda.h the scores of keys that rotate on the way,
// code_tile_cuda.h the tiles of a cache of f8e4m3.

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/attention/decode/code_tile_cuda.h"
#include "ops/attention/decode/launch.h"
#include "ops/attention/decode/query_rows_cuda.h"
#include "ops/attention/decode/rope_scores_cuda.h"
#include "ops/attention/decode/softmax_state_cuda.h"

namespace heddle::cuda::attention::decode {

/// Tells which word of the tables is wrong.
__device__ inline void report_wrong(const DecodeLaunchParams& p, const Run& run) {
  const bool is_of_bundle =
      p.bundle_indptr.is_given() && !sequence_pages(p.kv, last_query(run)).is_wrong();
  if (!is_of_bundle) return report_sequence(p.kv, "batch_decode", last_query(run));
  report_fault(p.kv.faults, "batch_decode", "bundle_indptr", run.seq, p.bundle_indptr[run.seq]);
}

/// Stores the output of row tile `tile` from the state of all keys: NaN where the table is wrong.
/// Warp w stores its groups of 16 elements.
template <class T, class Shape, class Params>
__device__ void store_rows(const Params& p, const Run& run, int tile,
                           const SoftmaxState<Shape::kGroups>& state) {
  const QueryRows rows(p, run, Shape::kRows);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool is_wrong = run.cut->first_page < 0;
  if (is_wrong && threadIdx.x == 0) report_wrong(p, run);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = tile * Shape::kRowTile + lane % 4 * 2 + i;
    const float sum = is_wrong ? NAN : sum_of_keys(state.rows.sum[i]);
    const bool is_empty = sum == 0.0f;
    const float scale = is_empty ? 0.0f : 1.0f / sum;
    if (row >= rows.count) continue;
    const auto [query, head] = rows.at(p, row);
    T* to = reinterpret_cast<T*>(p.o) + query * p.o_token + head * p.o_head;
#pragma unroll
    for (int j = 0; j < Shape::kGroups; ++j) {
      const float4& o = state.o[j];
      const float low = (i == 0 ? o.x : o.y) * scale, high = (i == 0 ? o.z : o.w) * scale;
      const int group = (warp * Shape::kGroups + j) * 16;
      if constexpr (Shape::kCodes) {
        store_two(p, to, group + lane / 4 * 2, low, high);
      } else {
        const int element = group + lane / 4;
        if (element < p.head_dim) to[element] = narrow<T>(low);
        if (element + 8 < p.head_dim) to[element + 8] = narrow<T>(high);
      }
    }
    if (warp == 0 && lane / 4 == 0 && p.lse != nullptr) {
      p.lse[query * p.lse_token + head * p.lse_head] =
          is_empty ? -INFINITY : (state.rows.max[i] + log2f(sum)) * kLn2;
    }
  }
}

/// Scores q . k become those of the softmax, in units of log2.
template <int kPageTiles, int kRowTiles>
__device__ void scale_scores(const AttentionCallParams& p, float (&s)[kPageTiles][kRowTiles][4]) {
  const auto change = [&](const auto& of) {
#pragma unroll
    for (float(&part)[kRowTiles][4] : s) {
#pragma unroll
      for (float(&tile)[4] : part) {
#pragma unroll
        for (float& score : tile) score = of(score);
      }
    }
  };
  if (p.soft_cap > 0.0f) {
    const float scale = p.sm_scale / p.soft_cap, cap = p.soft_cap * kLog2E;
    change([=](float score) { return cap * tanhf(score * scale); });
  } else {
    const float scale = p.sm_scale * kLog2E;
    change([=](float score) { return score * scale; });
  }
}

template <int kDim, int kRowTiles, class Params>
using ShapeOf = DecodeShape<kDim, kRowTiles, std::is_same_v<Params, RotatingDecodeParams>,
                            std::is_same_v<Params, CodeDecodeParams>>;

/// Whether this block is the last one to arrive of those that share a unit. Then all their states
/// are in memory. All threads call.
template <class Shape>
__device__ bool arrive(const DecodeLaunchParams& p, const Run& run, uint32_t block_of,
                       DecodeShared<Shape>& s) {
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* counter = p.counters + block_of;
    const uint32_t num = run.end - run.first;
    const bool is_last = add_to_counter(counter, num) + num == run.cut->num_segments;
    if (is_last) *counter = 0;
    s.is_last = is_last;
  }
  __syncthreads();
  return s.is_last != 0;
}

/// Ends a unit that several blocks share, after this block has left its states: the last block to
/// arrive merges the states of all.
template <class T, class Shape, class Params>
__device__ void share_unit(const Params& p, const Run& run, const SegmentPartials<Shape>& partials,
                           const MergePlace& place, DecodeShared<Shape>& s) {
  const auto segment = min(threadIdx.x % 32, run.cut->num_segments - 1);
  const uint32_t block_of = s.work.block_of(run.cost_before + run.unit * run.cut->unit_cost +
                                            segment * run.cut->segment_cost());
  // The counter of the block with segment 0: a block has segment 0 of one shared unit at most.
  if (!arrive(p, run, __shfl_sync(~0u, block_of, 0), s)) return;
#pragma unroll 1
  for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
    const auto state = merge_segments(partials, block_of, run.cut->num_segments, tile, place);
    store_rows<T, Shape>(p, run, tile, state);
  }
}

/// tf32 has 11 significant bits: enough for bf16 with its 8, not for f16, which has 11 itself.
template <class T, class Shape>
using RotatedScores = std::conditional_t<std::is_same_v<T, __nv_bfloat16> && Shape::kHasRoomForTf32,
                                         Tf32Scores<T, Shape>, SplitScores<T, Shape>>;

/// Adds the warp's tiles of a run to sums, from `position` up to `end`. Returns the position of the
/// warp's next tile.
template <class T, class Shape, class Params>
__device__ int add_tiles(const Params& p, const SequenceCut& cut, const std::byte* q, int position,
                         int end, DecodeShared<Shape>& s, StageRing<Shape, Params>& ring,
                         KeyTileSums<Shape::kDim, Shape::kRowTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RowFragments<Shape::kDim, Shape::kRowTiles> rows;
  if constexpr (!Shape::kRotates) rows.load(shared_address(q), lane);
#pragma unroll 1
  for (; position < end; position += Shape::kWarps * kTileKeys) {
    const std::byte* keys = ring.template take<false>();
    float weights[1][Shape::kRowTiles][4];
    if constexpr (Shape::kRotates) {
      const int num_steps = ceil_div(p.head_dim, 16);
      RotatedScores<T, Shape>(s, q, p.rope.num_pairs, num_steps)(keys, position, weights[0]);
    } else {
      score_tile<T>(shared_address(keys), rows, lane, weights[0]);
    }
    scale_scores(p, weights);
    hide_keys<Shape::kHasBundles>(p, cut, position, weights);
    weigh_tile(sums, weights);
    std::byte* const values = ring.template take<true>();
    if constexpr (Shape::kHasBundles) {
      take_out_not_finite<T>(p, cut, position, values, weights[0], sums);
    }
    add_values<T>(shared_address(values), lane, weights[0], sums);
  }
  return position;
}

/// Adds the warp's tiles of codes to sums, as add_tiles() does.
template <class Shape>
__device__ int add_code_tiles(const CodeDecodeParams& p, const SequenceCut& cut, const std::byte* q,
                              int position, int end, StageRing<Shape, CodeDecodeParams>& ring,
                              KeyTileSums<Shape::kDim, Shape::kRowTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  CodeRowFragments<Shape> rows;
  rows.load(q, lane, p.is_bfloat16);
  ValueUnit unit;
#pragma unroll 1
  for (; position < end; position += Shape::kWarps * Shape::kKeys) {
    const std::byte* keys = ring.template take<false>();
    float weights[Shape::kKeys / kTileKeys][Shape::kRowTiles][4];
    score_codes<Shape>(p.scales, keys, rows, lane, weights);
    scale_scores(p, weights);
    hide_keys<Shape::kHasBundles>(p, cut, position, weights);
    weigh_tile(sums, weights);
    add_code_values<Shape>(p.scales, ring.template take<true>(), lane, unit, weights, sums);
  }
  unit.leave(p.scales, sums);
  return position;
}

/// Merges what the warps have summed of a segment. The result joins the states of the run where
/// that began with segment 0, or in a cluster. Else it is a state of its own, for the block that
/// will merge the unit. All threads call.
template <class Shape, class Params>
__device__ void end_segment(const Run& run, uint32_t segment, uint32_t block,
                            const KeyTileSums<Shape::kDim, Shape::kRowTiles>& sums,
                            StageRing<Shape, Params>& ring, const SegmentPartials<Shape>& partials,
                            DecodeShared<Shape>& s,
                            SoftmaxState<Shape::kGroups> (&states)[Shape::kRowTiles]) {
#pragma unroll
  for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
    __syncwarp();
    put_sums(sums, tile, ring.free_part(), s);
    __syncthreads();  // and the next rows of q have arrived
    const auto sum = gather_sums(s);
    if (run.first != 0 && !s.work.is_of_cluster) {
      partials.put(block, static_cast<int>(segment), tile, sum);
    } else {
      states[tile] = segment == run.first ? sum : merge(states[tile], sum);
    }
    __syncthreads();
  }
}

/// The end of a block in a cluster that shares a unit; `run` is its only one. All threads call.
template <class T, class Shape, class Params>
__device__ void end_cluster(const Params& p, const Run& run,
                            SoftmaxState<Shape::kGroups> (&states)[Shape::kRowTiles],
                            DecodeShared<Shape>& s) {
  const bool is_first = run.first == 0;
  if (!is_first) put_cluster_states(states, s);
  arrive_at_cluster();
  wait_for_cluster();
  if (is_first) take_cluster_states(run.cut->num_segments, states, s);
  arrive_at_cluster();
  if (is_first) {
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
      store_rows<T, Shape>(p, run, tile, states[tile]);
    }
  }
  wait_for_cluster();
}

/// Stores the outputs of a unit that the block has whole. Of a shared unit it leaves its states,
/// and merges the unit if it is the last to arrive. All threads call.
template <class T, class Shape, class Params>
__device__ void end_run(const Params& p, const Run& run, uint32_t block,
                        SoftmaxState<Shape::kGroups> (&states)[Shape::kRowTiles],
                        const SegmentPartials<Shape>& partials, const MergePlace& place,
                        DecodeShared<Shape>& s) {
  if (s.work.is_of_cluster) return end_cluster<T>(p, run, states, s);
  const bool is_whole = run.is_whole();
  if (run.first == 0) {
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
      if (is_whole) {
        store_rows<T, Shape>(p, run, tile, states[tile]);
      } else {
        partials.put(block, 0, tile, states[tile]);
      }
    }
  }
  if (!is_whole) share_unit<T>(p, run, partials, place, s);
}

/// The walk of what a block computes.
template <class Shape>
using ComputeWalk = RunWalk<decltype(DecodeShared<Shape>::work), 1, 2>;

/// Begins a block. On chips from 9.0 on that may happen while the kernel in front still runs, and
/// that kernel may write lengths and the page table. So there are two steps:
///
///   1. Speculative start: partition the work and look up the first pages by what the table says
///      now. It may be stale, but whatever it says, all that is read lies in the table.
///   2. Wait for the kernel in front. Read lengths and pages again, start to copy the first rows of
///      q, keys and values. Where something has changed, drop the copies and begin anew.
///
/// Where a speculative start is not possible, only step 2 happens. All threads call.
template <class Shape, class Params>
__device__ BlockWork begin_work(const Params& p, uint32_t block, DecodeShared<Shape>& s,
                                ComputeWalk<Shape>& walk, StageRing<Shape, Params>& ring) {
#if __CUDA_ARCH__ >= 900
  bool is_speculative = p.can_start_on_stale_table;
#else
  bool is_speculative = false;
#endif
  if (!is_speculative) fetch_tables(p);
#pragma unroll 1
  while (true) {
    if (!is_speculative) wait_for_predecessor();
    const BlockWork share = partition_work(p, block, gridDim.x, is_speculative, s.work);
    FirstPages first;
    if (share == BlockWork::kSegments) {
      walk.start();
      first = ring.start(is_speculative);
    }
    const bool is_in_pool = !is_speculative || are_of_pool(p, first);
    TableWords now;
    if (is_speculative) {
      wait_for_predecessor();
      now = request_again(p, first);  // before the copies, which would delay it
    }
    if (share == BlockWork::kSegments && is_in_pool) {
      fetch_rows<Shape>(p, walk.run(), s.q[0]);
      commit_copies();
      ring.begin();
    }
    if (!is_speculative || __syncthreads_and(is_in_pool && is_unchanged(p, s.work, first, now)))
      return share;
    wait_for_copies<0>();
    __syncthreads();
    is_speculative = false;
  }
}

// Grid: AttentionChoice::num_blocks blocks of DecodeShape::kThreads. Blocks that are side by side
// in the work, blocks_per_sm of them, run on one multiprocessor: `block` is the number in the work.
template <class T, int kDim, int kRowTiles, class Params>
__global__ void __launch_bounds__(ShapeOf<kDim, kRowTiles, Params>::kThreads,
                                  ShapeOf<kDim, kRowTiles, Params>::kBlocksPerSm)
    decode_kernel(const __grid_constant__ Params p) {
  using Shape = ShapeOf<kDim, kRowTiles, Params>;
  trigger_dependents();
  fetch_parameters(p);
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<DecodeShared<Shape>*>(memory);
  const uint32_t first = gridDim.x / p.blocks_per_sm;
  const uint32_t block = blockIdx.x % first * p.blocks_per_sm + blockIdx.x / first;
  const SegmentPartials<Shape> partials{reinterpret_cast<float4*>(p.partials), p.partial_pairs};
  if constexpr (Shape::kRotates) put_in_tile_rotations<Shape>(p.rope, s);
  StageRing<Shape, Params> ring(p, s);
  ComputeWalk<Shape> walk(p, s.work);
  const BlockWork share = begin_work(p, block, s, walk, ring);
  if (share == BlockWork::kIdleInCluster) return idle_in_cluster();
  if (share == BlockWork::kNone) return;
  wait_for_copies<Shape::kStages - 1>();
  __syncthreads();
  std::byte *q = s.q[0], *next_q = s.q[1];
#pragma unroll 1
  while (walk.has_run()) {
    const Run run = walk.run();
    walk.next();
    if (walk.has_run()) fetch_rows<Shape>(p, walk.run(), next_q);  // in the next group of copies
    if constexpr (Shape::kRotates) {
      RotatedScores<T, Shape>::rotate_rows(p.rope, run.cut->kv_len - 1, q, s);
      __syncthreads();
    }
    SoftmaxState<Shape::kGroups> states[kRowTiles];
    int position = run.begin_key() + static_cast<int>(threadIdx.x) / 32 * Shape::kKeys;
    const int run_end = run.end_key();
    int end = run.begin_key();
    // A short run takes so few parts that waiting for them does not wait for the next rows of q.
    const bool is_short = run_end - end < Shape::kStages * Shape::kWarps * Shape::kKeys;
#pragma unroll 1
    for (uint32_t segment = run.first; segment < run.end; ++segment) {
      end = min(end + run.cut->segment, run_end);
      KeyTileSums<kDim, kRowTiles> sums;
      sums.clear();
      if constexpr (Shape::kCodes) {
        position = add_code_tiles<Shape>(p, *run.cut, q, position, end, ring, sums);
      } else {
        position = add_tiles<T>(p, *run.cut, q, position, end, s, ring, sums);
      }
      if (is_short) {
        commit_copies();
        wait_for_copies<0>();
      }
      end_segment(run, segment, block, sums, ring, partials, s, states);
    }
    end_run<T>(p, run, block, states, partials, ring.free_place(!walk.has_run()), s);
    std::byte* const old_q = q;
    q = next_q;
    next_q = old_q;
  }
  wait_for_copies<0>();
}

template <class T, int kDim, int kRowTiles, class Params>
void launch_instance(const Params& p, int num_blocks, const AttentionLaunch& launch) {
  using Shape = ShapeOf<kDim, kRowTiles, Params>;
  // Codes are multiplied as f16, whatever q is.
  using Element = std::conditional_t<std::is_same_v<T, bfloat16>, __nv_bfloat16, __half>;
  constexpr auto kKernel = decode_kernel<Element, kDim, kRowTiles, Params>;
  constexpr int kBytes = sizeof(DecodeShared<Shape>);
  // More than a third of what a multiprocessor has: blocks of the next kernel come early, and three
  // on one would leave others less.
  constexpr int kLargeBytes = std::max(kBytes, 76 * 1024);
  static_assert(3 * (kLargeBytes + 1024) > kLargeSharedBytes + 1024);
  const int chip = launch.info.compute_capability / 10;
  const int bytes = chip == 9 || chip == 10 ? kLargeBytes : kBytes;
  allow_shared_memory<kKernel, kBytes, kLargeBytes>(launch.device, bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = launch.stream;
  launch_clusters_early<kKernel>(launch.device, config, p.cluster_size, p);
}

}  // namespace heddle::cuda::attention::decode
