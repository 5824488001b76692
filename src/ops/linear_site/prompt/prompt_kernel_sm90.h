#pragma once

#include "cuda/bulk_copy_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/sm90/ring_cuda.h"
#include "cuda/sm90/tensor_copy_cuda.h"
#include "cuda/sm90/warpgroup_registers_cuda.h"
#include "cuda/sm90/wgmma_cuda.h"

#include "ops/linear_site/prompt/prompt_adapters_cuda.h"
#include "ops/linear_site/prompt/prompt_shape.h"

namespace heddle::cuda::linear_site {

// y = x W^T of many rows.
//
//   block        tiles of 128 rows x 256 (or 128) outputs, one after the other
//   warpgroups   two multiply 64 rows each, sums in registers; one thread of the third asks for x
//                and W, 64 features at a time, into a ring of stages, also of the tile to come
//   cluster      two blocks with other rows and the same outputs: each asks for half of W, for both
//
// A sum is one chain of products of 16 features in ascending order, whatever the tile.

template <int kOutputs>
struct PromptStage {
  std::byte x[kPromptTileRows * kSwizzledRowBytes];
  std::byte weights[kOutputs * kSwizzledRowBytes];
};

template <int kOutputs>
struct PromptShared {
  static constexpr int kStages = prompt_stages(kOutputs);
  PromptStage<kOutputs> stages[kStages];
  std::byte lines[kPromptConsumerWarps][kPromptLinesBytes];
  Ring<kStages> ring;
};
static_assert(sizeof(PromptShared<256>) == prompt_shared_bytes(256));
static_assert(sizeof(PromptShared<128>) == prompt_shared_bytes(128));

/// The tiles of a block. Clusters take them in turn. A group of row units comes with one output
/// tile after the other, so that blocks which run at the same time share x and W in the L2 cache.
struct PromptTiles {
  int cluster, num_clusters, rank, total;

  __device__ explicit PromptTiles(const PromptParams& p)
      : cluster(static_cast<int>(blockIdx.x) / p.cluster_size),
        num_clusters(static_cast<int>(gridDim.x) / p.cluster_size),
        rank(static_cast<int>(blockIdx.x) % p.cluster_size),
        total(p.num_row_units * p.num_output_tiles) {}
};

struct PromptTile {
  int slice = 0, first_output, first_row;

  __device__ PromptTile(const PromptParams& p, const PromptTiles& tiles, int index,
                        int tile_outputs) {
    const int group = divide(index, p.of_tiles), first_unit = group * p.group_units;
    const int local = index - first_unit * p.num_output_tiles;
    const int output_tile = divide(local, group == p.last_group ? p.of_last_units : p.of_units);
    const int units = min(p.group_units, p.num_row_units - first_unit);
    const int unit = first_unit + local - output_tile * units;
    first_row = (unit * p.cluster_size + tiles.rank) * kPromptTileRows;
#pragma unroll
    for (int s = 0; s < kPromptMaxSlices - 1; ++s) {
      slice += s < p.num_slices - 1 && output_tile >= p.slices[s].end_tile;
    }
    const int begin = slice == 0 ? 0 : p.slices[slice - 1].end_tile;
    first_output = (output_tile - begin) * tile_outputs;
  }
};

/// load: one thread copies x and the weights of all tiles. With a cluster of two each block copies
/// half of the weights, for both.
template <int kOutputs>
__device__ void load(const PromptParams& p, PromptShared<kOutputs>& s) {
  constexpr uint16_t kBothBlocks = 3;
  const PromptTiles tiles(p);
  RingPlace at = RingPlace::of_load();
  for (int i = tiles.cluster; i < tiles.total; i += tiles.num_clusters) {
    const PromptTile tile(p, tiles, i, kOutputs);
    const CUtensorMap& weights = p.weights[tile.slice];
    for (int step = 0; step < p.num_steps; ++step) {
      s.ring.wait_empty(at);
      PromptStage<kOutputs>& stage = s.stages[at.stage];
      const int feature = step * kPromptStepFeatures;
      PhaseBarrier& full = s.ring.expect(at, sizeof(stage));
      tensor_load(stage.x, p.x, tile.first_row, feature, full, CachePriority::kNormal);
      if (p.cluster_size == 1) {
        tensor_load(stage.weights, weights, tile.first_output, feature, full,
                    CachePriority::kNormal);
      } else {
        const int first = tiles.rank * (kOutputs / 2);
        tensor_load_to_blocks(stage.weights + first * kSwizzledRowBytes, weights,
                              tile.first_output + first, feature, full, kBothBlocks,
                              CachePriority::kNormal);
      }
      at.advance(PromptShared<kOutputs>::kStages);
    }
  }
}

/// Adds the bias to the sums.
template <class T, int kSums>
__device__ void add_bias(const WarpRows& rows, float (&sum)[kSums]) {
  const T* const bias = static_cast<const T*>(rows.slice->bias) + rows.first_output;
  const int first = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int output = 8 * j + first + i;
      const float v = output < rows.width ? widen(bias[output]) : 0.0f;
      sum[4 * j + i] += v;
      sum[4 * j + 2 + i] += v;
    }
  }
}

/// The number of this lane, read each time: what is computed from it does not stay in registers
/// while a tile is multiplied.
[[nodiscard]] __device__ inline int fresh_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// Waits until the warp's lines in shared memory are free: the copy engine has read them.
__device__ inline void wait_for_lines() {
  if (is_elected()) wait_for_bulk_reads();
  __syncwarp();
}

/// Writes 64 outputs of each row of a warp, from output `first` of the tile on, by the copy engine.
/// words: of 16 bits, two a word, as a lane has them of eight outputs and the rows g, then g + 8.
__device__ inline void copy_lines(const CUtensorMap& y, const WarpRows& rows, int first,
                                  std::byte* lines, const uint32_t* words) {
  if (first >= rows.width) return;
  const int lane = fresh_lane(), row = lane % 16;
  const uint32_t to = shared_address(lines) + row * 128;
  wait_for_lines();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int vector = (2 * i + lane / 16) ^ row % 8;
    store_matrices(to + vector * 16, words + 4 * i);
  }
  show_to_copy_engine();
  __syncwarp();
  if (is_elected()) {
    tensor_store(y, rows.first_row, rows.first_output + first, lines);
    commit_bulk_stores();
  }
}

/// Writes 128 bytes of each row of a warp, as Y, from output `first` of the tile on: through shared
/// memory, so that lanes have 16 bytes each, and eight of them a line. get(j, half): a lane's two
/// values of the j-th eight outputs, of row g + 8 half.
template <class Y, class Get>
__device__ void store_lines(const WarpRows& rows, int first, std::byte* lines, Get&& get) {
  constexpr int kVector = 16 / sizeof(Y);
  const int lane = fresh_lane(), g = lane / 4, q = lane % 4;
  const auto place = [&](int row, int vector) { return row * 128 + (vector ^ row % 8) * 16; };
  wait_for_lines();
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto two = get(j, half);
      const int byte = 8 * static_cast<int>(sizeof(Y)) * j + q * static_cast<int>(sizeof(two));
      std::byte* const to = lines + place(g + 8 * half, byte / 16) + byte % 16;
      *reinterpret_cast<std::remove_const_t<decltype(two)>*>(to) = two;
    }
  }
  __syncwarp();
  const int column = first + lane % 8 * kVector, left = rows.width - column;
  const int64_t stride = rows.slice->y_stride;
  Y* const y =
      static_cast<Y*>(rows.slice->y) + rows.first_row * stride + rows.first_output + column;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 8 + 4 * i;
    if (row >= rows.num_rows) break;
    const uint4 v = *reinterpret_cast<const uint4*>(lines + place(row, lane % 8));
    Y* const to = y + row * stride;
    if (rows.slice->has_vectors && left >= kVector) {
      *reinterpret_cast<uint4*>(to) = v;
      continue;
    }
    const Y* const values = reinterpret_cast<const Y*>(&v);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      if (k < left) to[k] = values[k];
    }
  }
}

/// y of a tile, rounded, that waits to be written while the next tile is multiplied. Two outputs a
/// word.
template <int kOutputs>
struct PendingTile {
  static constexpr int kLines = kOutputs / 64;
  int index = -1;  // of the tile; -1: none waits
  uint32_t words[kOutputs / 4] = {};

  template <class T>
  __device__ void keep(int of_tile, const float (&sum)[kOutputs / 2]) {
    index = of_tile;
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) words[i] = narrow_two<T>({sum[2 * i], sum[2 * i + 1]});
  }
};

/// multiply and finish: a warpgroup, which writes y of a tile while it multiplies the next one.
template <class T, int kOutputs>
struct Multiply {
  static constexpr int kStages = PromptShared<kOutputs>::kStages;
  static constexpr int kLoadSteps = 3;  // stages that a load of adapters has time for
  using Pending = PendingTile<kOutputs>;

  const PromptParams& p;
  PromptShared<kOutputs>& s;
  int warp;
  RingPlace at = RingPlace::of_multiply();
  PhaseBarrier* before = nullptr;  // of the stage that is multiplied
  float sum[kOutputs / 2] = {};

  /// Lets go of the stage before.
  __device__ void release() {
    const auto lane = threadIdx.x % 32;
    if (before != nullptr && lane < static_cast<unsigned>(p.cluster_size)) {
      before->arrive_in_block(lane);
    }
  }
  /// Starts to multiply a stage; `meanwhile` runs before its products end.
  template <class Work>
  __device__ void multiply_stage(bool is_first, Work&& meanwhile) {
    const PromptStage<kOutputs>& stage = s.stages[at.stage];
    const uint64_t x = matrix_descriptor(stage.x + warp / 4 * kPromptGroupRows * kSwizzledRowBytes);
    const uint64_t weights = matrix_descriptor(stage.weights);
    s.ring.wait_full(at);
    begin_products();
#pragma unroll
    for (uint64_t k = 0; k < 4; ++k) wgmma<T>(sum, x + 2 * k, weights + 2 * k, !is_first || k > 0);
    commit_products();
    meanwhile();
    wait_for_products<1>();
    release();
    before = &s.ring.empty[at.stage];
    at.advance(kStages);
  }
  /// The stages from `step` to before `end` from the last one on.
  __device__ void multiply_until(int end, int& step) {
    for (; step < p.num_steps - end; ++step) multiply_stage(false, [] {});
  }
  [[nodiscard]] __device__ WarpRows rows_of(int index) const {
    const PromptTile tile(p, PromptTiles(p), index, kOutputs);
    return {p, tile.slice, tile.first_row + 16 * warp, tile.first_output};
  }
  /// Writes 64 outputs of the tile that waits. What belongs to it is found anew each time: sums and
  /// words take nearly all registers.
  __device__ void store(const Pending& pending, int i) {
    if (pending.index < 0) return;
    const WarpRows rows = rows_of(pending.index);
    if (rows.num_rows <= 0) return;
    std::byte* const lines = s.lines[warp];
    const uint32_t* const words = pending.words + 16 * i;
    if (rows.slice->has_vectors) {
      copy_lines(p.y[rows.slice_index], rows, 64 * i, lines, words);
    } else {
      store_lines<T>(rows, 64 * i, lines, [&](int j, int half) { return words[2 * j + half]; });
    }
  }
  /// All features of a tile, and its adapters; during the first stages y of the previous tile is
  /// written.
  __device__ void multiply(int index, const Pending& pending) {
#pragma unroll
    for (int i = 0; i < Pending::kLines; ++i) {
      const auto meanwhile = [&] { store(pending, i); };
      i < p.num_steps ? multiply_stage(i == 0, meanwhile) : meanwhile();
    }
    int step = min(Pending::kLines, p.num_steps);
    const WarpRows rows = rows_of(index);
    const bool has_adapters = p.adapters.rows != nullptr;
    WarpAdapters<T, kOutputs / 2> adapters(p.adapters);
    multiply_until(3 * kLoadSteps, step);
    if (has_adapters) {
      wait_for_predecessor();
      adapters.find_rows(rows, p.num_rows);
    }
    multiply_until(2 * kLoadSteps, step);
    if (has_adapters) adapters.find_first(rows);
    multiply_until(kLoadSteps, step);
    if (has_adapters) adapters.load_first(rows, warp);
    multiply_until(0, step);
    wait_for_products<0>();
    release();
    before = nullptr;
    if (rows.slice->bias != nullptr) add_bias<T>(rows, sum);
    if (has_adapters) adapters.add(rows, sum);
  }
  __device__ void run() {
    const PromptTiles tiles(p);
    Pending pending;
    for (int i = tiles.cluster; i < tiles.total; i += tiles.num_clusters) {
      multiply(i, pending);
      pending = {};
      if (p.y_dtype == DType::kFloat32) {
        store_floats(rows_of(i));
      } else {
        pending.template keep<T>(i, sum);
      }
    }
#pragma unroll
    for (int i = 0; i < Pending::kLines; ++i) store(pending, i);
    if (is_elected()) wait_for_bulk_stores();
  }
  __device__ void store_floats(const WarpRows& rows) {
    if (rows.num_rows <= 0) return;
#pragma unroll
    for (int first = 0; first < kOutputs; first += 32) {
      store_lines<float>(rows, first, s.lines[warp], [&](int j, int half) {
        const int index = first / 2 + 4 * j + 2 * half;
        return float2{sum[index], sum[index + 1]};
      });
    }
  }
};

template <class T, int kOutputs>
__global__ void __launch_bounds__(kPromptThreads, 1)
    prompt_kernel(const __grid_constant__ PromptParams p) {
  extern __shared__ __align__(1024) std::byte shared[];
  auto& s = *reinterpret_cast<PromptShared<kOutputs>*>(shared);
  // Uniform over the warp, also for the compiler.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  if (warp == kPromptConsumerWarps && is_elected()) {
    s.ring.init(kPromptConsumerWarps * p.cluster_size);
    show_to_copy_engine();
    show_barriers_to_cluster();
    for (int i = 0; i < p.num_slices; ++i) prefetch_tensor_map(p.weights[i]);
    prefetch_tensor_map(p.x);
  }
  __syncthreads();
  arrive_at_cluster();
  wait_for_cluster();
  trigger_dependents();
  // With adapters the previous kernel is join of lora_apply, the products of other outputs, or the
  // end of what rounds packed weights. It started after all that wrote x and W, so the first tile
  // need not wait for it.
  if (p.adapters.rows == nullptr) wait_for_predecessor();

  if (warp >= kPromptConsumerWarps) {
    give_back_registers<24>();
    if (warp == kPromptConsumerWarps && is_elected()) load(p, s);
  } else {
    take_registers<240>();
    Multiply<T, kOutputs>{p, s, warp}.run();
  }
  // A block's memory and barriers stay until the other one needs them no more.
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace heddle::cuda::linear_site
