#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/lora_device/general_loads_cuda.h"
#include "ops/lora_device/grouped/launch_cuda.h"
#include "ops/lora_device/grouped/row_tile_h_cuda.h"
#include "ops/lora_device/outputs_cuda.h"

namespace heddle::cuda::lora {
namespace {

// Expand of the grouped route where something is not aligned, B is transposed, or y has another
// dtype than the weights. The bits are those of grouped/expand_cuda.cu. The sums pass through
// shared memory, so that a warp reads and writes 256 outputs of a row, in vectors
// (lora_device/general_loads_cuda.h).

constexpr int kThreads = kGeneralForm.warps * 32;
static_assert(kGeneralForm.warps == kBlockWarps && kGeneralForm.warp_outputs == kGroupOutputs);
static_assert(kHeadBytes % 16 == 0 && sizeof(StagedSums) % 16 == 0);
static_assert(kHeadBytes + int{sizeof(StagedSums)} + kGeneralHValues * 4 <= kPortableSharedBytes);

/// How many parts can be other than zero, rounded up to 1, 2, 4 or 8. With fewer chunks than chains
/// the last parts are zeros, and are not read.
__device__ int parts_with_sums(const GroupedParams& p, const ChainSplit& split) {
  const int there = ceil_div(p.site.num_chunks, split.subtree);
  int parts = 1;
  while (parts < there && parts < split.parts) parts *= 2;
  return parts;
}

/// make_general_h() for up to kParts parts. The parts of kQuads quads are loaded at once.
template <class T, int kParts, int kQuads>
__device__ void make_quads(const GroupedParams& p, const ExpandShared& s, int slice, int first,
                           int count, int parts, HVector* h) {
  const int steps = num_steps(s.rank), quads = 4 * steps;
  const float* const sums = p.partials + slice * p.slice_ranks;
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x); begin < count; begin += kQuads * kThreads) {
    float4 v[kQuads][kParts];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int at = begin + i * kThreads, row = at / quads, rank = (at - row * quads) * 4;
      const bool in_range = at < count && first + row < s.num_rows && rank < s.rank;
      const float* const from = sums + int64_t{s.first_row + first + row} * p.h_width + rank;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        v[i][part] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (in_range && part < parts)
          v[i][part] = __ldcg(reinterpret_cast<const float4*>(from + part * p.part_stride));
      }
    }
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int at = begin + i * kThreads, row = at / quads, rank = (at - row * quads) * 4;
      if (at >= count) break;
#pragma unroll
      for (int d = 1; d < kParts; d *= 2) {
#pragma unroll
        for (int part = 0; part < kParts; part += 2 * d) {
          float4 &x = v[i][part], &y = v[i][part + d];
          x = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
        }
      }
      store_quad<T>(h, steps, s.rank, row, rank, keep_ranks(v[i][0], s.rank - rank));
    }
  }
}

/// h[tile][step][hi or lo][lane] = h of the rows [first, first + 16 * tiles) of the row tile. All
/// threads call it.
template <class T>
__device__ void make_general_h(const GroupedParams& p, const ExpandShared& s, int slice, int first,
                               int tiles, int parts, HVector* h) {
  const int count = tiles * kProductRows * 4 * num_steps(s.rank);
  if (!p.has_a) {
    make_h<T, kGeneralForm.warps, true>(p, s, slice, first, tiles, parts, h);
  } else if (parts <= 2) {
    make_quads<T, 2, 4>(p, s, slice, first, count, parts, h);
  } else {
    make_quads<T, 8, 1>(p, s, slice, first, count, parts, h);
  }
}

/// Calls f(j, row of 16, row of the row tile, RowOutputs) for the two rows of 16 that this warp
/// writes.
template <class F>
__device__ void for_rows(const GroupedParams& p, const ExpandShared& s, int tile, int first,
                         int width, F&& f) {
  with_type(p.site.y_dtype, [&](auto type) {
    using Y = decltype(type);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int in_tile = static_cast<int>(threadIdx.x / 32) + 8 * j;
      const int row = tile * kProductRows + in_tile;
      if (row < s.num_rows)
        f(j, in_tile, row,
          RowOutputs<Y>(reinterpret_cast<Y*>(s.y[row]) + first, min(kBlockOutputs, width - first)));
    }
  });
}

// y (+)= factor * h B^T.
//
//   block   output tiles of up to 128 rows of one adapter x 256 outputs, h of the rows in shared
//           memory
//   warp    multiplies 32 outputs of 16 * kTiles rows with each B that it loads; then writes all
//           256 outputs of two rows of each 16
//   lane    multiplies as lora_device/expand_product_cuda.h says; writes a vector of 16 bytes of a row
//
// Grid: blocks that run at the same time, with consecutive tiles.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads, kGeneralForm.blocks)
    grouped_expand_general_kernel(const __grid_constant__ GroupedParams p) {
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<ExpandShared*>(memory);
  auto& staged = *reinterpret_cast<StagedSums*>(memory + kHeadBytes / sizeof(uint4));
  HVector* const h = memory + (kHeadBytes + sizeof(StagedSums)) / sizeof(uint4);
  const GroupedHead plan(p);
  const int num_tiles = plan.num_tiles;
  const int total = num_tiles * p.output_tiles_per_row_tile;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int each = total / blocks, more = total - each * blocks;
  const int begin = block * each + min(block, more), end = begin + each + (block < more);
  const int parts = p.has_a ? parts_with_sums(p, ChainSplit(p, num_tiles)) : 1;
  const int y_bytes = p.site.y_dtype == DType::kFloat32 ? 4 : 2;
  int cached_tile = -1, cached_slice = -1;
  bool waits = p.has_a;
#pragma unroll 1
  for (int index = begin; index < end; ++index) {
    const OutputTile output_tile(p, index, kBlockOutputs);
    const bool is_new = output_tile.tile != cached_tile || output_tile.slice != cached_slice;
    if (is_new) {
      __syncthreads();
      describe<kThreads>(p, output_tile, y_bytes, s);
      __syncthreads();
    }
    cached_tile = output_tile.tile, cached_slice = output_tile.slice;
    if (s.rank == 0) continue;
    const int width = p.site.slices[output_tile.slice].width;
    const GeneralWeights weights(
        s.b, s.b_stride / 2, p.site.is_transposed_b, s.rank,
        output_tile.first + static_cast<int>(threadIdx.x / 32) * kGroupOutputs, width);
    Weights<2, kWarpColumns> next;
    weights.load(0, next);
    const int steps = num_steps(s.rank), tiles = ceil_div(s.num_rows, kProductRows);
    // Where h of all rows does not fit, some rows come at a time.
    const int fit = max(1, p.h_values / (16 * kProductRows * steps));
#pragma unroll 1
    for (int tile = 0, first = 0; tile < tiles;) {
      const int some = min(fit, tiles - first), num = min(kTiles, first + some - tile);
      OldOutputs old[2];
      const auto load_old = [&](int of) {
        if (!p.site.accumulate) return;
        for_rows(p, s, of, output_tile.first, width,
                 [&](int j, int, int, const auto& y) { y.load(old[j]); });
      };
      if constexpr (kTiles == 1) load_old(tile);
      if (tile == first && (is_new || fit < tiles)) {
        if (waits) wait_for_predecessor();
        waits = false;
        __syncthreads();
        make_general_h<T>(p, s, output_tile.slice, first * kProductRows, some, parts, h);
        __syncthreads();
      }
      Sums<kWarpColumns> sum[kTiles] = {};
      const HVector* const of_tile = h + (tile - first) * steps * kHTileVectors + threadIdx.x % 32;
#pragma unroll 1
      for (int step = 0; step < steps; step += 2) {
        const Weights<2, kWarpColumns> b = next;
        // Behind the last ranks come the first ones again, for the next rows.
        if (steps > 2) weights.load(step + 2 < steps ? step * 16 + 32 : 0, next);
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          if (step + k >= steps) break;
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            if (i >= num) break;
            multiply<T>(HPair(of_tile + (i * steps + step + k) * kHTileVectors), b, k, sum[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i >= num) break;
        if constexpr (kTiles > 1) load_old(tile + i);
        __syncthreads();  // the sums before have been read
        stage(sum[i], staged);
        __syncthreads();
        for_rows(p, s, tile + i, output_tile.first, width,
                 [&](int j, int in_tile, int row, const auto& y) {
                   y.store(old[j], s.factor[row], p.site.accumulate, staged[in_tile]);
                 });
      }
      tile += num;
      if (tile == first + some) first = tile;
    }
  }
  if (waits) wait_for_predecessor();  // shall not end before shrink does
  plan.refuse_if_foreign(p);
}

template <class T, int kTiles>
void run(const GroupedParams& p, const GroupedLaunch& launch) {
  constexpr auto kKernel = grouped_expand_general_kernel<T, kTiles>;
  const int bytes = kHeadBytes + int{sizeof(StagedSums)} + p.h_values * 4;
  allow_shared_memory<kKernel, kPortableSharedBytes>(launch.device);
  launch_part<kKernel>(p, launch, launch.config.expand_blocks, kThreads, bytes, p.has_a);
}

/// Up to 32 ranks are one load of B, which then stays in registers for all rows. More are loaded
/// again for each tile, so two tiles share a load.
template <class T>
void launch_instance(const GroupedParams& p, const GroupedLaunch& launch) {
  p.has_a&& p.site.max_rank <= 32 ? run<T, 1>(p, launch) : run<T, 2>(p, launch);
}

}  // namespace

template <>
void launch_grouped_expand_general<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_instance<__nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_expand_general<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_instance<__half>(p, launch);
}

}  // namespace heddle::cuda::lora
