#pragma once

#include "ops/lora/device/expand_product_cuda.h"
#include "ops/lora/grouped/row_tiles_cuda.h"

namespace heddle::cuda::lora {

// Of the second kernel for batches of many rows, aligned or not: its work items and products.

/// In shared memory: the row tile and slice whose h comes behind.
struct ExpandShared {
  const std::byte* b;
  int64_t b_stride;  // bytes
  int32_t rank;      // 0: nothing to do
  int32_t first_row, num_rows;
  std::byte* y[kGroupedTileRows];  // output 0 of each row
  float factor[kGroupedTileRows];
};

inline constexpr int kHeadBytes = (sizeof(ExpandShared) + 127) / 128 * 128;
inline constexpr uint32_t kNothing =
    0x8000'8000u;  // -0 twice: it changes no bit of what is added to it

/// A row tile, a slice and as many outputs of it as a block has at once.
struct OutputTile {
  int tile, slice, first;

  __device__ OutputTile(const GroupedParams& p, int index, int outputs) {
    tile = index / p.output_tiles_per_row_tile;
    int local = index - tile * p.output_tiles_per_row_tile;
    slice = 0;
    while (local >= p.output_tile_end[slice]) ++slice;
    if (slice > 0) local -= p.output_tile_end[slice - 1];
    first = local * outputs;
  }
};

template <int kThreads>
__device__ void describe(const GroupedParams& p, const OutputTile& output_tile, int y_bytes,
                         ExpandShared& s) {
  const SiteParams& site = p.site;
  const SliceParams& slice = site.slices[output_tile.slice];
  const GroupedTile tile = p.plan.tiles[output_tile.tile];
  const SlotWeights weights(p, tile, output_tile.slice);
  const LoraWeight& b = weights.b;
  const float scale = site.scale * b.scale;
  if (threadIdx.x == 0) {
    s.b = static_cast<const std::byte*>(b.data);
    s.b_stride = b.row_stride * 2;
    s.rank = weights.rank;
    s.first_row = tile.first;
    s.num_rows = tile.num_rows;
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows; i += kThreads) {
    const int64_t row = p.plan.rows[tile.first + i];
    s.y[i] = static_cast<std::byte*>(slice.y) + row * slice.y_stride * y_bytes;
    s.factor[i] = site.row_scale != nullptr ? scale * site.row_scale[row] : scale;
  }
}

/// All ranks of an adapter with up to 16, or 32 of one with more.
template <bool kIsNarrow, int kSteps, int kColumns>
__device__ void load_weights(Weights<kSteps, kColumns>& w, const ExpandShared& s, int first_output,
                             int width, int first_rank, int to) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const bool is_narrow = kIsNarrow || s.rank <= 16;
  const int rank = is_narrow ? q * 4 : first_rank + q * 8;
  const std::byte* const from = s.b + (first_output + output_of(0, g)) * s.b_stride + rank * 2;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const bool in_range = rank < s.rank && first_output + output_of(i, g) < width;
    const std::byte* at = from + output_of(i, 0) * s.b_stride;
    uint4 x{0, 0, 0, 0};
    if (is_narrow) {
      const uint2 two = in_range ? __ldg(reinterpret_cast<const uint2*>(at)) : uint2{0, 0};
      x.x = two.x, x.y = two.y;
    } else if (in_range) {
      x = __ldg(reinterpret_cast<const uint4*>(at));
    }
    w.v[i][to] = {x.x, x.y};
    if constexpr (kSteps > 1) w.v[i][to + 1] = {x.z, x.w};
  }
}

/// Two outputs: what they held and factor times their sums.
template <class T>
__device__ uint32_t add_rounded(uint32_t before, float factor, float low, float high) {
  const float2 v = widen_two<T>(before);
  return narrow_two<T>({__fmaf_rn(factor, low, v.x), __fmaf_rn(factor, high, v.y)});
}

}  // namespace heddle::cuda::lora
