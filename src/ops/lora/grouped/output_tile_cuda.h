#pragma once

#include "ops/lora/grouped/h_cuda.h"

namespace heddle::cuda::lora {

// Of the second kernel for batches of many rows, aligned or not: its work items and products.

inline constexpr int kLaneOutputs = 8;  // of a row and a group of outputs: 16 bytes of y
inline constexpr int kGroupOutputs = 32;
inline constexpr int kProductOutputs = 8;  // of one product
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

/// Output of a warp that lane group g has in column i: so each lane has sums of outputs that lie one behind the other.
__device__ inline int output_of(int i, int g) {
  return i / 4 * kGroupOutputs + g / 2 * kLaneOutputs + i % 4 * 2 + g % 2;
}

/// Weights of a lane for kSteps steps of 16 ranks; products along the outputs of a warp.
template <int kSteps, int kColumns>
struct Weights {
  uint2 v[kColumns][kSteps];

  /// All ranks of an adapter with up to 16, or 32 of one with more.
  template <bool kIsNarrow>
  __device__ void load(const ExpandShared& s, int first_output, int width, int first_rank, int to) {
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
      v[i][to] = {x.x, x.y};
      if constexpr (kSteps > 1) v[i][to + 1] = {x.z, x.w};
    }
  }
};

/// Of lane (g, q): row g of a tile and outputs 2 q + [0, 2) of a column, then row g + 8.
template <int kColumns>
using Sums = float[kColumns][4];

/// What a lane has of h for one step and 16 rows.
struct HPair {
  HVector v[2];  // hi, lo

  __device__ explicit HPair(const HVector* h) : v{h[0], h[32]} {}
};

template <class T, int kSteps, int kColumns>
__device__ void multiply(const HPair& h, const Weights<kSteps, kColumns>& b, int step,
                         Sums<kColumns>& sum) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const HVector& x = h.v[half];
    const uint32_t a[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      mma_m16n8k16<T>(sum[i], a, b.v[i][step].x, b.v[i][step].y);
    }
  }
}

/// Two outputs: what they held and factor times their sums.
template <class T>
__device__ uint32_t add_rounded(uint32_t before, float factor, float low, float high) {
  const float2 v = widen_two<T>(before);
  return narrow_two<T>({__fmaf_rn(factor, low, v.x), __fmaf_rn(factor, high, v.y)});
}

}  // namespace heddle::cuda::lora
