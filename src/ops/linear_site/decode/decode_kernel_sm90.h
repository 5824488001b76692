#pragma once

#include "cuda/bulk_copy_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/sm90/ring_cuda.h"
#include "cuda/sm90/tensor_copy_cuda.h"
#include "cuda/sm90/warpgroup_registers_cuda.h"
#include "cuda/sm90/wgmma_cuda.h"

#include "ops/linear_site/decode/adapter_expand_cuda.h"
#include "ops/linear_site/decode/decode_params_cuda.h"
#include "ops/linear_site/decode/finish_outputs_cuda.h"
#include "ops/linear_site/decode/x_signal_cuda.h"

namespace heddle::cuda::linear_site {

/// The barriers of a block, and where its warps for adapters find their memory, which they would
/// keep in registers otherwise.
struct alignas(16) SharedBarriers {
  Ring<kMaxStages> weights, x;
  PhaseBarrier delta_full, delta_empty, x_ready;
  AdapterShared adapters;
};
static_assert(sizeof(SharedBarriers) == kSharedBarrierBytes);

/// The boxes [first, first + num) of features that a block multiplies, of each tile.
struct BoxRange {
  int first, num;

  __device__ explicit BoxRange(const DecodeParams& p) {
    const auto rank = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.cluster_size));
    first = p.num_boxes * rank / p.cluster_size;
    num = p.num_boxes * (rank + 1) / p.cluster_size - first;
  }
};

/// The tiles of a block's cluster.
struct TileRange {
  int begin, step;

  __device__ explicit TileRange(const DecodeParams& p)
      : begin(static_cast<int>(blockIdx.x) / p.cluster_size),
        step(static_cast<int>(gridDim.x) / p.cluster_size) {}
};

/// The columns [first, end) of a tile that a block finishes, of a cluster that shares its features.
struct ColumnRange {
  int first, end;

  __device__ ColumnRange(const DecodeParams& p, int tile_outputs) {
    const auto rank = static_cast<int>(blockIdx.x) % p.cluster_size;
    first = tile_outputs / 8 * rank / p.cluster_size * 8;
    end = tile_outputs / 8 * (rank + 1) / p.cluster_size * 8;
  }
};

/// load: one thread copies the weights, at most max_loading stages ahead of what has arrived.
__device__ inline void load_weights(const DecodeParams& p, int tile_outputs, std::byte* ring_bytes,
                                    Ring<kMaxStages>& ring) {
  const BoxRange boxes(p);
  const TileRange tiles(p);
  const int box_bytes = tile_outputs * kSwizzledRowBytes;
  RingPlace at = RingPlace::of_load(), arrived = RingPlace::of_multiply();
  int ahead = 0;
  for (int t = tiles.begin; t < p.num_tiles; t += tiles.step) {
    const Tile tile(p, t, tile_outputs);
    for (int box = 0; box < boxes.num; box += p.stage_boxes) {
      ring.wait_empty(at);
      if (ahead == p.max_loading) {
        ring.wait_full(arrived);
        arrived.advance(p.weight_stages);
      } else {
        ++ahead;
      }
      const int num = min(p.stage_boxes, boxes.num - box);
      PhaseBarrier& full = ring.expect(at, static_cast<uint32_t>(num * box_bytes));
      std::byte* to = ring_bytes + at.stage * p.stage_boxes * box_bytes;
      for (int i = 0; i < num; ++i) {
        tensor_load(to + i * box_bytes, p.weights[tile.slice], tile.first_output,
                    (boxes.first + box + i) * kBoxFeatures, full, CachePriority::kEvictFirst);
      }
      at.advance(p.weight_stages);
    }
  }
}

/// Whether the products may start when x is ready, before the previous kernel has ended.
[[nodiscard]] __device__ inline bool has_signal(const DecodeParams& p) {
  return p.adapters.signal != nullptr;
}

/// load: another thread copies x, which the previous kernel may still be writing. It arrives at
/// `x_ready` once every earlier kernel except the A x launch has finished.
__device__ inline void load_x_boxes(const DecodeParams& p, std::byte* ring_bytes,
                                    Ring<kMaxStages>& ring, PhaseBarrier& x_ready) {
  const BoxRange boxes(p);
  const TileRange tiles(p);
  const int box_bytes = p.x_box_rows * kSwizzledRowBytes;
  RingPlace at = RingPlace::of_load();
  if (has_signal(p)) {
    wait_for_x(*p.adapters.signal);
    show_memory_to_copy_engine();
  } else {
    wait_for_predecessor();
  }
  x_ready.arrive();
  for (int t = tiles.begin; t < p.num_tiles; t += tiles.step) {
    for (int box = 0; box < boxes.num; box += p.stage_boxes) {
      ring.wait_empty(at);
      const int num = min(p.stage_boxes, boxes.num - box);
      PhaseBarrier& full = ring.expect(at, static_cast<uint32_t>(num * box_bytes));
      std::byte* to = ring_bytes + at.stage * p.stage_boxes * box_bytes;
      for (int i = 0; i < num; ++i) {
        tensor_load(to + i * box_bytes, p.x, 0, (boxes.first + box + i) * kBoxFeatures, full,
                    CachePriority::kEvictLast);
      }
      at.advance(p.x_stages);
    }
  }
}

/// The sums of a lane of a warpgroup for kOutputs outputs, as pieces of 64, 32 and 16.
template <int kOutputs>
struct TileSums {
  static constexpr int k64 = kOutputs / 64, k32 = kOutputs % 64 / 32, k16 = kOutputs % 32 / 16;
  static_assert(kOutputs % 16 == 0);
  float of64[k64 > 0 ? k64 : 1][32], of32[16], of16[8];

  __device__ void clear() {
#pragma unroll
    for (auto& piece : of64) {
#pragma unroll
      for (float& v : piece) v = 0.0f;
    }
#pragma unroll
    for (float& v : of32) v = 0.0f;
#pragma unroll
    for (float& v : of16) v = 0.0f;
  }
  template <class T>
  __device__ void multiply(uint64_t x, uint64_t weights) {
    constexpr uint64_t kRowStep = kSwizzledRowBytes / 16;
#pragma unroll
    for (int i = 0; i < k64; ++i) wgmma<T>(of64[i], x, weights + i * 64 * kRowStep);
    if constexpr (k32 > 0) wgmma<T>(of32, x, weights + k64 * 64 * kRowStep);
    if constexpr (k16 > 0) wgmma<T>(of16, x, weights + (kOutputs - 16) * kRowStep);
  }
  /// Calls f(first output, number of outputs, sums) for each piece.
  template <class F>
  __device__ void for_each_piece(F&& f) const {
#pragma unroll
    for (int i = 0; i < k64; ++i) f(i * 64, of64[i]);
    if constexpr (k32 > 0) f(k64 * 64, of32);
    if constexpr (k16 > 0) f(kOutputs - 16, of16);
  }
};

/// Puts the sums of a warp's 16 rows into rows of shared memory, `stride` floats apart.
template <int kNum>
__device__ void store_sums(float* rows, int stride, const float (&sums)[kNum]) {
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, q = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* const to = rows + (g + half * 8) * stride + 2 * q;
#pragma unroll
    for (int j = 0; j < kNum / 4; ++j) {
      *reinterpret_cast<float2*>(to + 8 * j) = {sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]};
    }
  }
}

/// multiply: a tile, all stages of this block. Rows of x that a box does not have are multiplied,
/// too, as whatever bytes follow it; their sums are not used.
template <class T, int kOutputs>
__device__ void multiply_tile(const DecodeParams& p, const std::byte* weight_bytes,
                              const std::byte* x_bytes, Ring<kMaxStages>& weights,
                              Ring<kMaxStages>& x, RingPlace& weight_at, RingPlace& x_at,
                              TileSums<kOutputs>& sums) {
  constexpr int kWeightBox = kOutputs * kSwizzledRowBytes;
  const int x_box = p.x_box_rows * kSwizzledRowBytes;
  const BoxRange boxes(p);
  const int group = static_cast<int>(threadIdx.x / 128);
  const bool releases = threadIdx.x % 32 == 0;
  PhaseBarrier *weight_before = nullptr, *x_before = nullptr;
  sums.clear();
  for (int box = 0; box < boxes.num; box += p.stage_boxes) {
    const int num = min(p.stage_boxes, boxes.num - box);
    const uint64_t w =
        matrix_descriptor(weight_bytes + weight_at.stage * p.stage_boxes * kWeightBox);
    const uint64_t a = matrix_descriptor(x_bytes + x_at.stage * p.stage_boxes * x_box +
                                         group * kGroupRows * kSwizzledRowBytes);
    weights.wait_full(weight_at);
    x.wait_full(x_at);
    for (int i = 0; i < num; ++i) {
      begin_products();
#pragma unroll
      for (uint64_t k = 0; k < 4; ++k) {
        sums.template multiply<T>(a + uint64_t(i) * uint64_t(x_box / 16) + 2 * k,
                                  w + uint64_t(i) * (kWeightBox / 16) + 2 * k);
      }
    }
    commit_products();
    wait_for_products<1>();
    if (releases && weight_before != nullptr) {
      weight_before->arrive();
      x_before->arrive();
    }
    weight_before = &weights.empty[weight_at.stage];
    x_before = &x.empty[x_at.stage];
    weight_at.advance(p.weight_stages);
    x_at.advance(p.x_stages);
  }
  wait_for_products<0>();
  if (releases && weight_before != nullptr) {
    weight_before->arrive();
    x_before->arrive();
  }
}

/// y of the columns that a block finishes of its last tile: the parts of all blocks of its cluster,
/// added up in order, and what adapters add, at this parity of delta_full. All threads call it.
template <class T, int kOutputs>
__device__ void finish_parts(const DecodeParams& p, const Tile& tile, const ColumnRange& columns,
                             const float* parts, SharedBarriers& barriers, uint32_t parity) {
  constexpr int kStride = kOutputs + 4;
  const AdapterShared& s = barriers.adapters;
  const bool has_adapters = p.adapters.plan != nullptr;
  if (has_adapters) barriers.delta_full.wait(parity);
  const int quads = (columns.end - columns.first) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < quads * p.num_rows;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / quads, column = i % quads * 4;
    const auto* part =
        reinterpret_cast<const float4*>(parts + row * kStride + columns.first + column);
    float4 v[kMaxClusterSize];
#pragma unroll
    for (int r = 0; r < kMaxClusterSize; ++r) {
      if (r < p.cluster_size) v[r] = load_of_block(part, static_cast<uint32_t>(r));
    }
    float sum[4] = {v[0].x, v[0].y, v[0].z, v[0].w};
#pragma unroll
    for (int r = 1; r < kMaxClusterSize; ++r) {
      if (r >= p.cluster_size) break;
      sum[0] += v[r].x, sum[1] += v[r].y, sum[2] += v[r].z, sum[3] += v[r].w;
    }
    const RowFactor factor = has_adapters ? s.factors[row] : RowFactor{};
    finish_outputs<T>(p, tile, row, columns.first + column, sum,
                      factor.is_used ? s.delta + row * s.delta_stride + column : nullptr,
                      factor.value);
  }
}

/// All work of a warp for adapters.
template <class T>
__device__ __forceinline__ void run_adapter_warp(const DecodeParams& p, SharedBarriers& barriers,
                                                 int index, int tile_outputs) {
  const TileRange tiles(p);
  const ColumnRange columns(p, tile_outputs);
  const AdapterWarp warp(p, barriers.adapters, index);
  Expand<T> expand(warp);
  expand.begin();
  barriers.x_ready.wait(0);  // and plan and tables
  uint32_t parity = 1;
  for (int t = tiles.begin; t < p.num_tiles; t += tiles.step) {
    const Tile tile(p, t, tile_outputs);
    barriers.delta_empty.wait(parity);
    parity ^= 1;
    expand.run(tile.slice, tile.first_output + columns.first,
               min(columns.end, tile.width) - columns.first);
    barriers.delta_full.arrive();  // each lane: racecheck sees no order of a warp's lanes
  }
}

// Bounds above the threads that are launched, 384 and 512: so a block has 49,152 registers at most,
// and blocks of A x fit on the SM with it.
template <class T, int kOutputs, int kGroups>
__global__ void __launch_bounds__(kGroups == 1 ? 512 : 640, 1)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(1024) std::byte shared[];
  const SharedLayout layout = shared_layout(p, kOutputs, kGroups);
  std::byte* const x_bytes = shared + layout.x;
  auto& barriers = *reinterpret_cast<SharedBarriers*>(shared + layout.barriers);
  Ring<kMaxStages>&weights = barriers.weights, &x = barriers.x;
  const bool has_adapters = p.adapters.plan != nullptr;
  // The sums of a block's last tile go through shared memory, so that all warps finish them.
  const bool has_parts = shares_last_tile(p.cluster_size, p.num_rows);
  constexpr int kConsumerWarps = 4 * kGroups;
  // Uniform over the warp, also for the compiler.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);

  if (warp == kConsumerWarps && is_elected()) {
    weights.init(kConsumerWarps);
    x.init(kConsumerWarps);
    barriers.delta_full.init(32 * kLoraWarps);
    barriers.x_ready.init(1);
    barriers.delta_empty.init(32 * kConsumerWarps);
    barriers.adapters = shared_by_adapters(shared, layout);
    show_to_copy_engine();
    for (int s = 0; s < p.num_slices; ++s) prefetch_tensor_map(p.weights[s]);
    prefetch_tensor_map(p.x);
  }
  __syncthreads();
  if (!has_signal(p)) trigger_dependents();  // else the thread that waits for x does

  const TileRange tiles(p);
  auto* const factors = reinterpret_cast<RowFactor*>(shared + layout.factors);
  auto* const delta = reinterpret_cast<float*>(shared + layout.delta);
  const int stride = static_cast<int>(layout.delta_stride);
  const ColumnRange columns(p, kOutputs);

  // Registers that the other warps leave go to the products, where these have many sums.
  constexpr bool kMovesRegisters = kOutputs > (kGroups == 1 ? 144 : 112);
  if (warp >= kConsumerWarps) {
    if constexpr (kMovesRegisters) give_back_registers<kGroups == 1 ? 96 : 88>();
    if (warp == kConsumerWarps) {
      if (is_elected()) load_weights(p, kOutputs, shared, weights);
    } else if (warp == kConsumerWarps + 1) {
      if (is_elected()) load_x_boxes(p, x_bytes, x, barriers.x_ready);
    } else if (has_adapters) {
      run_adapter_warp<T>(p, barriers, warp - kConsumerWarps - kProducerWarps, kOutputs);
    }
  } else {
    if constexpr (kMovesRegisters) take_registers<kGroups == 1 ? 192 : 104>();
    TileSums<kOutputs> sums;
    RingPlace weight_at = RingPlace::of_multiply(), x_at = weight_at;
    uint32_t parity = 0;
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int t = tiles.begin; t < p.num_tiles; t += tiles.step) {
      const Tile tile(p, t, kOutputs);
      multiply_tile<T, kOutputs>(p, shared, x_bytes, weights, x, weight_at, x_at, sums);
      if (has_parts && t + tiles.step >= p.num_tiles) break;
      if (has_adapters) {
        barriers.delta_full.wait(parity);
        parity ^= 1;
      }
      float* const piece_rows =
          reinterpret_cast<float*>(shared + layout.piece) + warp * 16 * kOutputRowStride;
      const int rows = min(16, p.num_rows - warp * 16);
      sums.for_each_piece([&](int first, const auto& piece) {
        if (rows <= 0) return;
        store_sums(piece_rows, kOutputRowStride, piece);
        __syncwarp();
        constexpr int kQuads = sizeof(piece) / sizeof(float) / 2;
        for (int i = lane; i < rows * kQuads; i += 32) {
          const int row = i / kQuads, column = i % kQuads * 4, of_x = warp * 16 + row;
          const float4 v =
              *reinterpret_cast<const float4*>(piece_rows + row * kOutputRowStride + column);
          float sum[4] = {v.x, v.y, v.z, v.w};
          const RowFactor factor = has_adapters ? factors[of_x] : RowFactor{};
          finish_outputs<T>(p, tile, of_x, first + column, sum,
                            factor.is_used ? delta + of_x * stride + first + column : nullptr,
                            factor.value);
        }
        __syncwarp();
      });
      if (has_adapters) barriers.delta_empty.arrive();
    }
    if (has_parts) {
      // The ring is free: all that was loaded has been multiplied, by all warps.
      asm volatile("bar.sync 1, %0;" ::"n"(kConsumerWarps * 32) : "memory");
      constexpr int kStride = kOutputs + 4;
      auto* const parts = reinterpret_cast<float*>(shared);
      sums.for_each_piece([&](int first, const auto& piece) {
        if (warp * 16 >= p.num_rows) return;
        store_sums(parts + warp * 16 * kStride + first, kStride, piece);
      });
    }
  }
  if (!has_parts) return;
  // All warps arrive here, also those that have put no sums into shared memory: where these did so
  // at the beginning, blocks hung as soon as the warp that asks for weights had to wait.
  __syncwarp();
  if (p.cluster_size > 1) {
    arrive_at_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
  int last = tiles.begin;
  uint32_t parity = 0;
  for (; last + tiles.step < p.num_tiles; last += tiles.step) parity ^= 1;
  finish_parts<T, kOutputs>(p, Tile(p, last, kOutputs), columns,
                            reinterpret_cast<const float*>(shared), barriers, parity);
  if (p.cluster_size == 1) return;
  // A block's memory stays until all others have read it.
  leave_cluster();
  wait_for_cluster();
}

}  // namespace heddle::cuda::linear_site
