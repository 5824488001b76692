#include <algorithm>

#include "core/math.h"
#include "ops/lora_device/grouped/launch_cuda.h"
#include "ops/lora_device/grouped/row_tile_h_cuda.h"
#include "ops/lora_device/outputs_cuda.h"

namespace heddle::cuda::lora {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksOfMultiprocessor = 4;  // more would only wait for these

/// Says of all rows that their adapter is not known, and tells.
__device__ void refuse_rows(const GroupedParams& p, const GroupedHead& plan) {
  const int thread = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (thread == 0) report_fault(p.site.faults, p.site.op(), "plan", 0, plan.tag);
  const int64_t count = int64_t{p.site.num_rows} * p.site.num_slices;
  for (int64_t i = thread; i < count; i += gridDim.x * kThreads) {
    p.row_adapters[i] = {0, 0, 0, NAN};
  }
}

// Adds the parts of h up once for all blocks of the kernel behind, and writes hi and lo in the
// order in which they are multiplied. A block takes some rows of a row tile and slice at a time, a
// thread four ranks of a row. Example, rank 16: a row has 4 vectors of 16 bytes, so a block takes
// 64 rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grouped_join_kernel(const __grid_constant__ GroupedParams p) {
  trigger_dependents();
  const GroupedHead plan(p);
  const int num_tiles = plan.num_tiles;
  const int part_rows = kThreads / p.h_row_vectors;  // a row has as many vectors as quads
  const int tile_parts = ceil_div(rows_of_tile(plan.num_rows), part_rows);
  const int slices = p.site.num_slices, of_tile = tile_parts * slices;
  const int parts = ChainSplit(p, num_tiles).parts;
  bool waits = true;
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x); item < num_tiles * of_tile;
       item += static_cast<int>(gridDim.x)) {
    const int tile_index = item / of_tile, local = item - tile_index * of_tile;
    const int slice = local % slices, first = local / slices * part_rows;
    const GroupedTile tile = p.plan.tiles[tile_index];
    const SlotWeights weights(p, tile, slice);
    if (waits) wait_for_predecessor();
    waits = false;
    const int quads = 4 * num_steps(weights.rank);  // of a row, four ranks each
    const int row = first + static_cast<int>(threadIdx.x) / quads;
    const int rank = static_cast<int>(threadIdx.x) % quads * 4, num = weights.rank - rank;
    if (row >= min(first + part_rows, tile.num_rows)) continue;
    const int at = tile.first + row;
    if (p.row_adapters != nullptr && rank == 0 && weights.rank > 0) {
      const int64_t of_batch = p.plan.rows[at];
      const float scale = p.site.scale * weights.b.scale;
      p.row_adapters[slice * p.site.num_rows + of_batch] = {
          tile.slot, at, weights.rank,
          p.site.row_scale != nullptr ? scale * p.site.row_scale[of_batch] : scale};
    }
    float4 v{0.0f, 0.0f, 0.0f, 0.0f};
    if (num > 0) v = keep_ranks(load_h(p, slice, at, rank, parts), num);
    const HWords words = split_h<T>(v);
    const HPlace place(weights.rank, rank);
    std::byte* const to = p.h + slice * p.h_slice_bytes +
                          int64_t{at} * p.h_row_vectors * int{sizeof(uint4)} +
                          place.q * int{sizeof(uint32_t)};
    const int swap = h_swap(at, p.h_row_vectors);
    const auto store = [&](int index, uint32_t v) {
      const int vector = (place.step * kHStepVectors + index) ^ swap;
      __stcg(reinterpret_cast<uint32_t*>(to + vector * int{sizeof(uint4)}), v);
    };
#pragma unroll
    for (int i = 0; i < 2; ++i) store(i, words.hi[i]), store(i + 2, words.lo[i]);
  }
  if (waits) wait_for_predecessor();  // shall not end before shrink does
  if (plan.is_foreign && p.row_adapters != nullptr) refuse_rows(p, plan);
}

template <class T>
void run(const GroupedParams& p, const GroupedLaunch& launch) {
  const int64_t rows = p.part_stride / p.h_width;
  const int64_t items = rows * p.h_row_vectors / kThreads * p.site.num_slices + 1;  // may be more
  const int64_t blocks = std::min<int64_t>(items, p.shrink_blocks * kBlocksOfMultiprocessor);
  launch_part<grouped_join_kernel<T>>(p, launch, static_cast<int>(blocks), kThreads, 0, true);
}

// The second half of lora_shrink, y (+)= factor * h. A block takes a row tile of a slice at a time,
// a thread four ranks of a row.
__global__ void __launch_bounds__(kThreads)
    grouped_sum_kernel(const __grid_constant__ GroupedParams p) {
  wait_for_predecessor();
  const SiteParams& site = p.site;
  const GroupedHead plan(p);
  plan.refuse_if_foreign(p);
  const int num_tiles = plan.num_tiles;
  const int parts = ChainSplit(p, num_tiles).parts;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < num_tiles * site.num_slices;
       index += static_cast<int>(gridDim.x)) {
    const int tile_index = index / site.num_slices, s = index - tile_index * site.num_slices;
    const SliceParams& slice = site.slices[s];
    const GroupedTile tile = p.plan.tiles[tile_index];
    const int rank = SlotWeights(p, tile, s).rank, quads = ceil_div(rank, 4);
    for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows * quads; i += kThreads) {
      const int of_tile = i / quads, first = (i - of_tile * quads) * 4;
      const float4 h = load_h(p, s, tile.first + of_tile, first, parts);
      const float v[4] = {h.x, h.y, h.z, h.w};
      const int64_t row = p.plan.rows[tile.first + of_tile];
      const float factor =
          site.row_scale != nullptr ? site.scale * site.row_scale[row] : site.scale;
      with_type(site.y_dtype, [&](auto type) {
        using Y = decltype(type);
        Y* const y = static_cast<Y*>(slice.y) + row * slice.y_stride + first;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (first + k >= rank) break;
          y[k] = finish(site.accumulate ? y[k] : Y{}, factor, v[k], site.accumulate);
        }
      });
    }
  }
}

}  // namespace

template <>
void launch_grouped_join<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  run<__nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_join<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  run<__half>(p, launch);
}

void launch_grouped_sum(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_part<grouped_sum_kernel>(p, launch, kBlocksOfMultiprocessor * p.shrink_blocks, kThreads, 0,
                                  true);
}

}  // namespace heddle::cuda::lora
