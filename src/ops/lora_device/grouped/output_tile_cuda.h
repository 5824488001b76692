#pragma once

#include "core/math.h"
#include "ops/lora_device/expand_product_cuda.h"
#include "ops/lora_device/grouped/row_tiles_cuda.h"

namespace heddle::cuda::lora {

// A work item of expand, the output tile: all rows of a row tile times some outputs of a slice,
// which are 256 or 512, a range of 32 or 64 for each warp. The product is that of
// expand_product_cuda.h.

/// In shared memory: what a block knows of its row tile and slice. Their h comes behind it.
struct ExpandShared {
  const std::byte* b;
  int64_t b_stride;  // bytes
  int32_t rank;      // 0: nothing to do
  int32_t first_row, num_rows;
  std::byte* y[kGroupedTileRows];  // output 0 of each row
  float factor[kGroupedTileRows];
};

inline constexpr int kHeadBytes = round_up(int{sizeof(ExpandShared)}, 128);
// Two elements -0 in a word, where y is overwritten: they change no bit of what is added to them.
inline constexpr uint32_t kNothing = 0x8000'8000u;

/// The output tile of a number: row tile, slice, first output. Numbers of a row tile are
/// consecutive.
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

/// Looks up the output tile's weights, rows of y and factors. All threads call it.
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

/// Loads B of a lane: all ranks of an adapter with up to 16 into step `to`, or of one with more the
/// 32 ranks from first_rank on into the steps `to` and to + 1.
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

/// Two outputs in a word: before + factor * sum, each rounded once.
template <class T>
__device__ uint32_t add_rounded(uint32_t before, float factor, float low, float high) {
  const float2 v = widen_two<T>(before);
  return narrow_two<T>({__fmaf_rn(factor, low, v.x), __fmaf_rn(factor, high, v.y)});
}

}  // namespace heddle::cuda::lora
