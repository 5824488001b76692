#pragma once

#include "ops/lora/halves/item_cuda.h"

namespace heddle::cuda::lora {

/// Rank tile `index` of either kind of plan.
struct RankTileOfPlan {
  int32_t slot, num_rows, tile, first_partial;
  int4 rows[2];

  __device__ RankTileOfPlan(const HalfParams& p, const OwnPlan& own, int index) {
    if (p.plan != nullptr) {
      const RankTile& of_plan = p.plan->tiles[index];
      const int4* from = reinterpret_cast<const int4*>(of_plan.rows);
      rows[0] = from[0];
      rows[1] = from[1];
      slot = of_plan.slot;
      num_rows = of_plan.num_rows;
      tile = of_plan.tile;
      first_partial = of_plan.first_partial;
      return;
    }
    const TileOfPlan row_tile(p, own, index / p.num_rank_tiles);
    rows[0] = row_tile.rows[0];
    rows[1] = row_tile.rows[1];
    slot = row_tile.slot;
    num_rows = row_tile.num_rows;
    tile = index % p.num_rank_tiles;
    first_partial = row_tile.first_partial + tile * num_rows;
  }
};

/// Describes item number `item` of shrink.
template <class T>
__device__ void describe_shrink(const HalfParams& p, const OwnPlan& own, int item, WorkItem& to) {
  const int rest = divide(item, p.chunk_reciprocal);
  const int index = divide(rest, p.slice_reciprocal);
  const int slice = rest - index * p.num_slices, chunk = item - rest * p.num_chunks;
  const RankTileOfPlan tile(p, own, index);
  const LoraWeight weight = read_weight(p.a, tile.slot, slice);
  const int first = chunk * kChunkFeatures, first_rank = tile.tile * kTileRanks;
  const Operand<T, false> a(weight.data, weight.row_stride, p.is_transposed_a);
  const bool in_range = weight.data != nullptr && first_rank < weight.rank;
  to.weight = in_range ? a.at(first_rank, first) : nullptr;
  to.row_stride = weight.row_stride;
  to.rank = in_range ? min(kTileRanks, weight.rank - first_rank) : 0;
  to.slice = slice;
  to.first = first;
  to.left = static_cast<int32_t>(p.in_features) - first;
  to.partial = partial_row(p, slice, chunk, tile.first_partial);
  to.num_rows = tile.num_rows;
  reinterpret_cast<int4*>(to.rows)[0] = tile.rows[0];
  reinterpret_cast<int4*>(to.rows)[1] = tile.rows[1];
}

/// Where vector `index` of a row of 64 features lies. Odd rows have their halves swapped.
__device__ inline int line_vector(int row, int index) { return row * 8 + (index ^ row % 2 * 4); }

/// Starts to copy kRows rows at the 64 features of this warp. row_of(i): row of the matrix, or -1
/// for zeros. `left`: features from the first one of the chunk on.
template <int kRows, class T, bool kAligned, class Row>
__device__ void fetch_lines(uint4* to, const Operand<T, kAligned>& w, int left, bool in_lines,
                            Row&& row_of) {
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x / 32 * 64);
  constexpr int kUnroll = kAligned ? kRows / 4 : 2;  // single elements are many loads
#pragma unroll kUnroll
  for (int i = lane; i < kRows * 8; i += 32) {
    const int row = i / 8, k = first + i % 8 * 8, m = row_of(row);
    fetch_8(&to[line_vector(row, i % 8)], w, m < 0 ? 0 : m, k, m < 0 ? 0 : left - k, in_lines);
  }
}

/// Starts to copy x of 8 rows.
template <class T, bool kAligned>
__device__ void fetch_rows(const HalfParams& p, const WorkItem& item, int tile, StagingSlot& slot) {
  const Operand<T, kAligned> x(static_cast<const T*>(p.input) + item.first, p.input_stride, false);
  fetch_lines<kProductTileRows>(slot.rows, x, item.left, p.is_input_aligned, [&](int row) {
    const int i = tile * kProductTileRows + row;
    return i < item.num_rows ? int{item.rows[i]} : -1;
  });
}

/// Starts to copy the 16 ranks of A and the first 8 rows of x.
template <class T, bool kAligned>
__device__ void fetch_shrink(const HalfParams& p, const WorkItem& item, StagingSlot& slot) {
  const Operand<T, kAligned> a(item.weight, item.row_stride, p.is_transposed_a);
  fetch_lines<kTileRanks>(slot.weights, a, item.left, !kAligned && a.is_in_lines(16),
                          [&](int row) { return row < item.rank ? row : -1; });
  fetch_rows<T, kAligned>(p, item, 0, slot);
}

/// Multiplies an item that has arrived and writes its partial sums. All threads call it.
template <class T, bool kAligned>
__device__ void run_shrink(const HalfParams& p, HalfShared& s, const WorkItem& item,
                           StagingSlot& slot) {
  const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll 1
  for (int tile = 0; tile * kProductTileRows < item.num_rows; ++tile) {
    if (tile > 0) {
      __syncwarp();
      fetch_rows<T, kAligned>(p, item, tile, slot);
      commit_copies();
      wait_for_copies<0>();
      __syncwarp();
    }
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const int at = line_vector(g, 4 * block + q);
      multiply_block<T>(slot.weights[at], slot.weights[64 + at], slot.rows[at], sum);
    }
    store_sums(s.sums, tile, sum);
  }
  __syncthreads();
  const int at = static_cast<int>(threadIdx.x);
  if (at / kTileRanks < item.num_rows) {
    p.partials[int64_t{item.partial} * kTileRanks + at] = sum_of_warps(s.sums);
  }
  __syncthreads();
}

}  // namespace heddle::cuda::lora
