#pragma once

#include "ops/lora/lora_gather_cuda.h"
#include "ops/lora/lora_outputs_cuda.h"

namespace heddle::cuda {

template <class T, LoraOp kOp>
__device__ void describe_expand(const LoraParams& p, int item, bool twice, LoraItem& to) {
  const int index = divide(item, p.part_reciprocal[twice]);
  int local = item - index * p.items_per_part[twice], slice = 0;
  while (local >= p.slices[slice].end[twice]) ++slice;
  if (slice > 0) local -= p.slices[slice - 1].end[twice];
  const LoraPart& part = p.plan->parts[index];
  const int4* rows = reinterpret_cast<const int4*>(part.rows);
  const int4 low = rows[0], high = rows[1];
  LoraWeight a, b;  // both on their way at once
  if constexpr (kOp != LoraOp::kExpand) a = read_weight(p.a, part.slot, slice);
  if constexpr (kOp != LoraOp::kShrink) b = read_weight(p.b, part.slot, slice);
  if constexpr (kOp == LoraOp::kShrink) b = a;
  if constexpr (kOp == LoraOp::kApply) b.rank = a.data == nullptr ? 0 : min(b.rank, a.rank);
  const int rank = b.data == nullptr ? 0 : min(b.rank, part.num_tiles * kLoraRankTile);
  const int first = local * (kOp == LoraOp::kShrink ? kBlockRanks : kLoraOutTile << twice);
  const LoraOperand<T, false> w(b.data, b.row_stride, p.is_transposed_b);
  to.weight = rank > 0 ? w.at(first, 0) : nullptr;
  to.row_stride = b.row_stride;
  to.rank = kOp == LoraOp::kShrink ? max(0, min(kBlockRanks, rank - first)) : rank;
  to.slice = slice;
  to.first = first;
  to.left = p.slices[slice].width - first;
  to.num_halves = twice && to.left > kLoraOutTile ? 2 : 1;
  int tile = part.first_tile;
  if (kOp == LoraOp::kShrink) tile += first / kLoraRankTile;
  to.partial = to.rank == 0 ? 0 : partial_row(p, slice, 0, p.plan->tiles[tile].first_partial);
  to.num_rows = part.num_rows;
  to.part = index;
  to.row_reciprocal = part.row_reciprocal;
  to.scale = p.scale * b.scale;
  reinterpret_cast<int4*>(to.rows)[0] = low;
  reinterpret_cast<int4*>(to.rows)[1] = high;
}

/// Ranks up to 16: vector i has of this lane's i-th output, i < 4, in either half, the ranks 4 q + [0, 4). Vector 4 + half has
/// the outputs of the rows, where they are plain.
template <class T, bool kPlain>
__device__ void fetch_narrow(const LoraParams& p, const LoraItem& item, LoraSlot& slot) {
  const LoraOperand<T, kPlain> b(item.weight, item.row_stride, p.is_transposed_b);
  const bool in_lines = !kPlain && b.is_in_lines(8);
  const int q = threadIdx.x % 4;
  uint4* to = &slot[0][threadIdx.x];
#pragma unroll 1
  for (int half = 0; half < item.num_halves; ++half) {
    const int n = output_of_lane(half);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int count = n + i < item.left ? item.rank - 4 * q : 0;
      const T* from = b.at(n + i, 4 * q);
      uint2* four = reinterpret_cast<uint2*>(to + i * kLoraThreads) + half;
      if (kPlain || (count >= 4 && in_lines)) {
        copy_async_8(four, count > 0 ? from : b.data, count > 0);
      } else {
        const uint4 some = count > 0 ? gather_8(from, b.k_stride, min(count, 4)) : uint4{};
        *four = {some.x, some.y};
      }
    }
    if constexpr (kPlain) fetch_old<T>(p, item, half, to + (4 + half) * kLoraThreads);
  }
}

/// More ranks: vector i has of this lane's i-th output of the half, of the 32 ranks from first_rank on, 8 q + [0, 8). With the
/// last of them vector 4 has the outputs of the rows, where they are plain.
template <class T, bool kPlain>
__device__ void fetch_wide(const LoraParams& p, const LoraItem& item, int half, int first_rank,
                           LoraSlot& slot) {
  const LoraOperand<T, kPlain> b(item.weight, item.row_stride, p.is_transposed_b);
  const bool in_lines = !kPlain && b.is_in_lines(16);
  const int n = output_of_lane(half), r = first_rank + static_cast<int>(threadIdx.x % 4 * 8);
  uint4* to = &slot[0][threadIdx.x];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    fetch_8(to + i * kLoraThreads, b, n + i, r, n + i < item.left ? item.rank - r : 0, in_lines);
  }
  if constexpr (kPlain) {
    if (first_rank + kRankPiece >= item.rank) fetch_old<T>(p, item, half, to + 4 * kLoraThreads);
  }
}

/// Steps through described items: those of shrink, then the pieces of those of expand.
struct LoraCursor {
  int shrink = 0, expand = 0, half = 0, first_rank = 0;

  __device__ void next_piece(const LoraItem& item) {
    first_rank += kRankPiece;
    if (first_rank < item.rank) return;
    first_rank = 0;
    if (item.rank > kLoraRankTile && ++half < item.num_halves) return;
    half = 0;
    ++expand;
  }
};

template <class T, bool kPlain>
__device__ void fetch_expand(const LoraParams& p, const LoraItem& item, const LoraCursor& at,
                             LoraSlot& slot) {
  if (item.rank <= kLoraRankTile) {
    fetch_narrow<T, kPlain>(p, item, slot);
  } else {
    fetch_wide<T, kPlain>(p, item, at.half, at.first_rank, slot);
  }
}

/// Adds products of `steps` times 16 ranks: those that output i has in words 2 step and 2 step + 1 of b[i].
template <class T>
__device__ void multiply(const LoraPieceOfH& piece, const uint4 (&b)[4], int steps, int num_tiles,
                         ExpandSums& sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kPieceSteps; ++step) {
    if (step >= steps) break;
#pragma unroll
    for (int tile = 0; tile < kPartTiles; ++tile) {
      if (tile >= num_tiles) break;
      const uint4 h = piece[step][tile][lane];
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // outputs 2 i and 2 i + 1
        const uint32_t a[4] = {word(b[2 * i], 2 * step), word(b[2 * i + 1], 2 * step),
                               word(b[2 * i], 2 * step + 1), word(b[2 * i + 1], 2 * step + 1)};
        mma_m16n8k16<T>(sum[tile][i], a, h.x, h.y);
        mma_m16n8k16<T>(sum[tile][i], a, h.z, h.w);
      }
    }
  }
}

/// Whose h lies in shared memory.
struct HeldH {
  int part = -1, slice = -1, first_rank = -1;
};

/// One piece of an item that was fetched; with the last one of a half y is written.
template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
__device__ void run_expand(const LoraParams& p, LoraShared& s, const LoraItem& item,
                           const LoraCursor& at, LoraSlot& slot, HeldH& held, ExpandSums& sum) {
  const int block = at.first_rank / kBlockRanks * kBlockRanks;
  if (held.part != item.part || held.slice != item.slice || held.first_rank != block) {
    if (!make_h<T, kOp, kForm, kPlain>(p, s, item, block, slot)) {
      fetch_expand<T, kPlain>(p, item, at, slot);
      commit_copies();
      wait_for_copies<0>();
    }
    held = {item.part, item.slice, block};
  }
  const LoraPieceOfH& h = s.h[(at.first_rank - block) / kRankPiece];
  const int num_tiles = (item.num_rows + kTileRows - 1) / kTileRows;
  const bool is_narrow = item.rank <= kLoraRankTile;
  const int num_halves = is_narrow ? item.num_halves : 1;
#pragma unroll 1
  for (int i = 0; i < num_halves; ++i) {
    uint4 b[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      b[j] = slot[j][threadIdx.x];
      if (i == 1) b[j] = {b[j].z, b[j].w, 0, 0};
    }
    multiply<T>(h, b, is_narrow ? 1 : kPieceSteps, num_tiles, sum);
    if (at.first_rank + kRankPiece < item.rank) break;
    write_half<T, kPlain>(p, item, is_narrow ? i : at.half, num_tiles, slot[4 + i][threadIdx.x],
                          sum);
  }
}

/// Of shrink alone: sums the parts and writes y.
template <class T, LoraForm kForm, bool kPlain>
__device__ void run_sum(const LoraParams& p, LoraShared& s, const LoraItem& item, LoraSlot& slot) {
  const LoraSliceParams& slice = p.slices[item.slice];
  const auto take = [&](int row_of_part, int r, float h) {
    if (r >= item.rank) return;
    const int row = item.rows[row_of_part];
    const float factor = p.row_scale != nullptr ? p.scale * p.row_scale[row] : p.scale;
    with_type(p.y_dtype, [&](auto type) {
      using Y = decltype(type);
      Y* y = static_cast<Y*>(slice.y) + row * slice.y_stride + item.first + r;
      *y = finish(p.accumulate ? *y : Y{}, factor, h, p.accumulate);
    });
  };
  if constexpr (kForm == LoraForm::kFused) {
    // Nothing is written before all is there: with accumulate a value must be added once.
    const auto look = [](int, int, float) {};
    while (!__syncthreads_and(gather_partials<true>(p, s, item, 0, item.rank, look))) {
      remake_partials<T, kPlain>(p, s, item, item.first / kLoraRankTile, item.rank, slot);
    }
    gather_partials<true>(p, s, item, 0, item.rank, take);
  } else {
    gather_partials<false>(p, s, item, 0, item.rank, take);
  }
}

}  // namespace heddle::cuda
