#pragma once

#include "core/math.h"
#include "ops/lora/halves/h_cuda.h"
#include "ops/lora/halves/outputs_cuda.h"

namespace heddle::cuda::lora {

/// Fills in what the items of expand and of sum have in common. first: output or rank.
__device__ inline void describe_rows(const HalfParams& p, const TileOfPlan& row_tile, int index,
                                     int slice, int first, WorkItem& to) {
  to.slice = slice;
  to.first = first;
  to.left = p.slices[slice].width - first;
  to.num_rows = row_tile.num_rows;
  to.row_tile = index;
  to.row_reciprocal = row_tile.row_reciprocal;
  reinterpret_cast<int4*>(to.rows)[0] = row_tile.rows[0];
  reinterpret_cast<int4*>(to.rows)[1] = row_tile.rows[1];
}

/// The slice of item number `local` of a row tile. Makes `local` the number within the slice.
__device__ inline int slice_of(const HalfParams& p, bool double_width, int& local) {
  int slice = 0;
  while (local >= p.slices[slice].end[double_width]) ++slice;
  if (slice > 0) local -= p.slices[slice - 1].end[double_width];
  return slice;
}

/// Describes item number `item` of expand.
template <class T>
__device__ void describe_expand(const HalfParams& p, const OwnPlan& own, int item,
                                bool double_width, WorkItem& to) {
  const int index = divide(item, p.row_tile_reciprocal[double_width]);
  int local = item - index * p.items_per_row_tile[double_width];
  const int slice = slice_of(p, double_width, local),
            first = local * (kTileOutputs << double_width);
  const TileOfPlan row_tile = row_tile_of(p, own, index);
  LoraWeight a, b = read_weight(p.b, row_tile.slot, slice);  // both loads at the same time
  if (p.partials != nullptr) {
    a = read_weight(p.a, row_tile.slot, slice);
    b.rank = a.data == nullptr ? 0 : min(b.rank, a.rank);
  }
  describe_rows(p, row_tile, index, slice, first, to);
  const int rank = b.data == nullptr ? 0 : min(b.rank, row_tile.num_tiles * kTileRanks);
  const Operand<T, false> w(b.data, b.row_stride, p.is_transposed_b);
  to.weight = rank > 0 ? w.at(first, 0) : nullptr;
  to.row_stride = b.row_stride;
  to.rank = rank;
  to.num_halves = double_width && to.left > kTileOutputs ? 2 : 1;
  to.partial = partial_row(p, slice, 0, row_tile.first_partial);
  to.scale = p.scale * b.scale;
}

/// Describes item number `item` of the kernel that sums for lora_shrink.
__device__ inline void describe_sum(const HalfParams& p, const OwnPlan& own, int item,
                                    WorkItem& to) {
  const int index = divide(item, p.row_tile_reciprocal[0]);
  int local = item - index * p.items_per_row_tile[0];
  const int slice = slice_of(p, false, local), first = local * kSumRanks;
  const TileOfPlan row_tile = row_tile_of(p, own, index);
  const LoraWeight a = read_weight(p.a, row_tile.slot, slice);
  describe_rows(p, row_tile, index, slice, first, to);
  const int rank = a.data == nullptr ? 0 : min(a.rank, row_tile.num_tiles * kTileRanks);
  to.rank = max(0, min(kSumRanks, rank - first));
  to.partial =
      partial_row(p, slice, 0, row_tile.first_partial + first / kTileRanks * row_tile.num_rows);
}

/// Where a warp is in its items of expand. An item is copied and multiplied in pieces that fit a
/// slot:
///   up to 16 ranks   one piece: the warp's 32 outputs of either half
///   more             for each half and 64 ranks two pieces, of 16 outputs each (pair 0 and 1)
struct Cursor {
  int item = 0, half = 0, first_rank = 0, pair = 0;

  [[nodiscard]] __device__ bool is_last_of_half(const WorkItem& of) const {
    return of.rank <= kTileRanks || (pair == 1 && first_rank + kWideRanks >= of.rank);
  }
  __device__ void advance(const WorkItem& of) {
    const bool has_rank_above_16 = of.rank > kTileRanks;
    if (has_rank_above_16 && !is_last_of_half(of)) {
      if (pair == 1) first_rank += kWideRanks;
      pair ^= 1;
      return;
    }
    first_rank = pair = 0;
    if (has_rank_above_16 && ++half < of.num_halves) return;
    half = 0;
    ++item;
  }
};

/// Up to 16 ranks: where the ranks [8 eighth, 8 eighth + 8) of output n of 32 lie in a slot.
__device__ inline int narrow_vector(int n, int eighth) { return (n * 2 + eighth) ^ n / 4 % 4 * 2; }

/// Up to 16 ranks: starts to copy B of the warp's 32 outputs of either half, and y.
template <class T, bool kAligned>
__device__ void fetch_narrow(const HalfParams& p, const WorkItem& item, StagingSlot& slot) {
  const Operand<T, kAligned> b(item.weight, item.row_stride, p.is_transposed_b);
  const bool in_lines = !kAligned && b.is_in_lines(16);
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int half = 0; half < item.num_halves; ++half) {
    const int first = half * kTileOutputs + static_cast<int>(threadIdx.x / 32 * 32);
#pragma unroll
    for (int i = lane; i < 64; i += 32) {
      const int n = i / 2, k = i % 2 * 8;
      fetch_8(&slot.weights[64 * half + narrow_vector(n, i % 2)], b, first + n, k,
              first + n < item.left ? item.rank - k : 0, in_lines);
    }
    if constexpr (kAligned) fetch_old<T>(p, item, half, &slot.old[half][lane]);
  }
}

/// More than 16 ranks: the output that is row `row` of the 16 x 16 operand of piece `pair`. The
/// rows g and g + 8 of the operand are neighbouring outputs.
__device__ inline int output_of_row(int row, int pair) { return row / 2 * 4 + pair * 2 + row % 2; }

__device__ inline int wide_vector(int row, int index) {
  return row * 8 + (index ^ row / 2 % 2 * 4);
}

/// More than 16 ranks: starts to copy 64 ranks of the 16 outputs of piece `at`. With the last piece
/// of a half comes y, where it is aligned.
template <class T, bool kAligned>
__device__ void fetch_wide(const HalfParams& p, const WorkItem& item, const Cursor& at,
                           StagingSlot& slot) {
  const Operand<T, kAligned> b(item.weight, item.row_stride, p.is_transposed_b);
  const bool in_lines = !kAligned && b.is_in_lines(16);
  const int lane = threadIdx.x % 32;
  const int first = at.half * kTileOutputs + static_cast<int>(threadIdx.x / 32 * 32);
  constexpr int kUnroll = kAligned ? 4 : 2;
#pragma unroll kUnroll
  for (int i = lane; i < 128; i += 32) {
    const int n = first + output_of_row(i / 8, at.pair), k = at.first_rank + i % 8 * 8;
    fetch_8(&slot.weights[wide_vector(i / 8, i % 8)], b, n, k, n < item.left ? item.rank - k : 0,
            in_lines);
  }
  if constexpr (kAligned) {
    if (at.is_last_of_half(item)) fetch_old<T>(p, item, at.half, &slot.old[0][lane]);
  }
}

template <class T, bool kAligned>
__device__ void fetch_expand(const HalfParams& p, const WorkItem& item, const Cursor& at,
                             StagingSlot& slot) {
  if (item.rank <= kTileRanks) {
    fetch_narrow<T, kAligned>(p, item, slot);
  } else {
    fetch_wide<T, kAligned>(p, item, at, slot);
  }
}

/// Adds the products of 16 ranks with hi and lo of h. `a`: B of 16 outputs.
template <class T>
__device__ void multiply(const uint4 (&h)[kProductTiles][32], const uint32_t (&a)[4], int pair,
                         int num_tiles, ExpandSums& sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int tile = 0; tile < kProductTiles; ++tile) {
    if (tile >= num_tiles) break;
    const uint4 v = h[tile][lane];
    mma_m16n8k16<T>(sum[tile][pair], a, v.x, v.y);
    mma_m16n8k16<T>(sum[tile][pair], a, v.z, v.w);
  }
}

/// Up to 16 ranks: lane (g, q) has the ranks 4 q + [0, 4) of the outputs 4 g + [0, 4) of a half.
template <class T>
__device__ void multiply_narrow(const HBlock& h, const StagingSlot& slot, int half, int num_tiles,
                                ExpandSums& sum) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint2 b[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4* vector = &slot.weights[64 * half + narrow_vector(4 * g + i, q / 2)];
    b[i] = reinterpret_cast<const uint2*>(vector)[q % 2];
  }
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const uint32_t a[4] = {b[2 * pair].x, b[2 * pair + 1].x, b[2 * pair].y, b[2 * pair + 1].y};
    multiply<T>(h[0], a, pair, num_tiles, sum);
  }
}

/// More: lane (g, q) has the ranks 8 q + [0, 8) of each 32, of the outputs 4 g + 2 pair + [0, 2).
template <class T>
__device__ void multiply_wide(const HBlock* h, const StagingSlot& slot, const Cursor& at, int rank,
                              int num_tiles, ExpandSums& sum) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int block = 0; block < kWideRanks / kHBlockRanks; ++block) {
    if (at.first_rank + block * kHBlockRanks >= rank) break;
    const uint4 low = slot.weights[wide_vector(2 * g, 4 * block + q)];
    const uint4 high = slot.weights[wide_vector(2 * g + 1, 4 * block + q)];
#pragma unroll
    for (int step = 0; step < kHSteps; ++step) {
      const uint32_t a[4] = {word(low, 2 * step), word(high, 2 * step), word(low, 2 * step + 1),
                             word(high, 2 * step + 1)};
      if (at.pair == 0) {
        multiply<T>(h[block][step], a, 0, num_tiles, sum);
      } else {
        multiply<T>(h[block][step], a, 1, num_tiles, sum);
      }
    }
  }
}

/// The row tile, slice and ranks whose h lies in shared memory.
struct CachedH {
  int row_tile = -1, slice = -1, first_rank = -1;
};

/// Multiplies a piece that has arrived. With the last one of a half it adds the sums to y.
template <class T, bool kAligned>
__device__ void run_expand(const HalfParams& p, HalfShared& s, const WorkItem& item,
                           const Cursor& at, StagingSlot& slot, CachedH& cached, ExpandSums& sum) {
  const int block = at.first_rank / kBlockRanks * kBlockRanks;
  if (cached.row_tile != item.row_tile || cached.slice != item.slice ||
      cached.first_rank != block) {
    make_h<T>(p, s, item, block);
    cached = {item.row_tile, item.slice, block};
  }
  const int num_tiles = ceil_div(item.num_rows, kProductTileRows);
  const int lane = threadIdx.x % 32;
  if (item.rank > kTileRanks) {
    multiply_wide<T>(&s.h[(at.first_rank - block) / kHBlockRanks], slot, at, item.rank, num_tiles,
                     sum);
    if (at.is_last_of_half(item)) {
      write_half<T, kAligned>(p, item, at.half, num_tiles, slot.old[0][lane], sum);
    }
    return;
  }
#pragma unroll 1
  for (int half = 0; half < item.num_halves; ++half) {
    multiply_narrow<T>(s.h[0], slot, half, num_tiles, sum);
    write_half<T, kAligned>(p, item, half, num_tiles, slot.old[half][lane], sum);
  }
}

/// Sums h of an item for lora_shrink and writes y.
__device__ inline void run_sum(const HalfParams& p, const WorkItem& item) {
  const SliceParams& slice = p.slices[item.slice];
  const PartialRows partials{item.partial, item.num_rows, item.row_reciprocal};
  gather_partials(p, partials, 0, item.rank, [&](int row_of_tile, int r, float h) {
    if (r >= item.rank) return;
    const int row = item.rows[row_of_tile];
    const float factor = p.row_scale != nullptr ? p.scale * p.row_scale[row] : p.scale;
    with_type(p.y_dtype, [&](auto type) {
      using Y = decltype(type);
      Y* y = static_cast<Y*>(slice.y) + row * slice.y_stride + item.first + r;
      *y = finish(p.accumulate ? *y : Y{}, factor, h, p.accumulate);
    });
  });
}

}  // namespace heddle::cuda::lora
