#pragma once

#include "core/math.h"
#include "ops/lora/fused/fused_cuda.h"
#include "ops/lora_device/outputs_cuda.h"
#include "ops/lora_device/rank_vectors_cuda.h"

namespace heddle::cuda::lora {

// The pieces of the fused kernel for aligned tensors. With few adapters a call is one chain of
// latencies, those of instructions included, so this kernel does with as few as it can. What a
// block multiplies goes from memory straight to registers: shared memory would cost a round trip
// more. While one block of a multiprocessor waits for memory, the other one computes.
//
// An item of expand, [256 outputs of B] x [all ranks] x [up to 16 rows of a row tile]:
//
//   outputs   | 32 of warp 0 | 32 of warp 1 | ... | 32 of warp 7 |     times two with double width
//
//   lane (g, q) of a warp, 8 rows at a time:
//     loads     B of the outputs 4 g + [0, 4): ranks 4 q + [0, 4), or 8 q + [0, 8) of each 32
//     takes     h of row g from shared memory, see lora_device/rank_vectors_cuda.h
//     has sums  of the outputs 4 g + [0, 4) and the rows 2 q and 2 q + 1, and adds them to y

struct AlignedShared {
  uint32_t flag;                        // of this launch
  alignas(16) WarpSums sums[2];         // of shrink: one is read while the other one is written
  HBlock h[kWideRanks / kHBlockRanks];  // of expand: 64 ranks of 16 rows
};

/// The entry of (slot, slice). `entries` begins with the first slice of the call.
__device__ inline LoraWeight read_entry(const LoraWeight* entries, int stride, int slot,
                                        int slice) {
  return entries[slot * stride + slice];
}

/// Elements [0, min(8, n)) of a row, zeros behind them, or zeros where in_range is false. kAligned:
/// 16 bytes aligned, n is a multiple of 8.
template <bool kAligned, class T>
__device__ uint4 load_8(bool in_range, const T* p, int n) {
  if constexpr (kAligned) {
    return in_range && n > 0 ? load_once_16(p) : uint4{0, 0, 0, 0};
  } else {
    return gather_8(p, 1, in_range ? n : 0);
  }
}
/// The same of 4 elements.
template <bool kAligned, class T>
__device__ uint2 load_4(bool in_range, const T* p, int n) {
  if constexpr (kAligned) {
    return in_range && n > 0 ? load_once_8(p) : uint2{0, 0};
  } else {
    const uint4 v = gather_8(p, 1, in_range ? min(n, 4) : 0);
    return {v.x, v.y};
  }
}
/// The same of outputs, which a launch before wrote.
template <bool kAligned, class T>
__device__ uint2 load_output_4(const T* p, int n) {
  if constexpr (kAligned) {
    return n > 0 ? *reinterpret_cast<const uint2*>(p) : uint2{0, 0};
  } else {
    return load_4<false>(true, p, n);
  }
}

/// Of elements in a matrix; aligned ones lie near to one another.
template <bool kAligned>
using Offset = std::conditional_t<kAligned, int, int64_t>;

/// Sums kNum chains, the first one that of *word, after which `left` chunks are left. It polls
/// kDeep words of each chain at once until all have the flag. False where that took too long.
template <int kNum, int kDeep>
__device__ bool sum_chains(const FusedParams& p, uint32_t flag, const FlaggedWord* word,
                           int chunk_stride, int left, float (&sum)[kNum]) {
#pragma unroll
  for (float& s : sum) s = kNoSum;
  uint32_t spins = 0;
#pragma unroll 1
  for (; left > 0; left -= kDeep * kChains) {
    FlaggedWord v[kDeep][kNum];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kDeep * kNum; ++i) {
        const int chunk = i / kNum * kChains + i % kNum;
        FlaggedWord& to = v[i / kNum][i % kNum];
        to = peek(word + (chunk < left ? chunk * chunk_stride : 0));
        ready &= to.flag == flag;
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kDeep * kNum; ++i) {
      const int chunk = i / kNum * kChains + i % kNum;
      sum[i % kNum] += chunk < left ? v[i / kNum][i % kNum].value : kNoSum;
    }
    word += kDeep * kChains * chunk_stride;
  }
  return true;
}

/// h of one row and rank: the sum of all chunks, where *word is that of the first one.
__device__ inline bool sum_chunks(const FusedParams& p, uint32_t flag, const FlaggedWord* word,
                                  int chunk_stride, float& h) {
  float sum[kChains];
  if (!sum_chains<kChains, 1>(p, flag, word, chunk_stride, p.num_chunks, sum)) return false;
  h = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  return true;
}

/// The same, computed by four lanes with two chains each; all four get h. Whole warps call it.
__device__ inline bool sum_chunks_by_four(const FusedParams& p, uint32_t flag,
                                          const FlaggedWord* word, int chunk_stride, float& h) {
  const int first = threadIdx.x % 4 * 2;
  float sum[2];
  const bool all_ready = sum_chains<2, 4>(p, flag, word + first * chunk_stride, chunk_stride,
                                          p.num_chunks - first, sum);
  h = sum[0] + sum[1];
  h += __shfl_xor_sync(kAllLanes, h, 1);
  h += __shfl_xor_sync(kAllLanes, h, 2);
  return all_ready;
}

/// Loads x of row `row` of the window, which is row `row_of_tile` of the row tile.
template <class T, bool kAligned>
__device__ void load_x(const FusedParams& p, const ShrinkItem& item, int row, int row_of_tile,
                       ShrinkData& to) {
  const T* x = static_cast<const T*>(p.input) +
               (row * static_cast<Offset<kAligned>>(p.input_stride) + item.feature);
  const int left = row_of_tile < item.num_rows ? p.in_features - item.feature : 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (kAligned) {  // through L1, since other blocks read the same rows
      to.x[i] = 32 * i < left ? *reinterpret_cast<const uint4*>(x + 32 * i) : uint4{0, 0, 0, 0};
    } else {
      to.x[i] = gather_8(x + 32 * i, 1, left - 32 * i);
    }
  }
}

template <class T, bool kAligned>
__device__ void load_shrink(const FusedParams& p, const ShrinkItem& item, const LoraWeight& a,
                            ShrinkData& to) {
  const auto stride = static_cast<Offset<kAligned>>(a.row_stride);
  const int rank = item.first_rank + lane_g();
  const T* low = static_cast<const T*>(a.data) + (rank * stride + item.feature);
  const T* high = low + 8 * stride;
  const int left = a.data != nullptr ? p.in_features - item.feature : 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to.low[i] = load_8<kAligned>(rank < a.rank, low + 32 * i, left - 32 * i);
    to.high[i] = load_8<kAligned>(rank + 8 < a.rank, high + 32 * i, left - 32 * i);
  }
  load_x<T, kAligned>(p, item, item.row, lane_g(), to);
}

/// Whether a block with so many items of shrink brings A to the L2 cache before it loads it. On an
/// H200 that saves 4 % of a call with some 12 items a block, costs up to 4 % with 2 to 4, and gains
/// nothing with 46.
__device__ inline bool prefetches_a(int num_items) { return num_items > 8 && num_items <= 16; }

/// Brings A of the chunk behind that of `item` to the L2 cache, if its ranks have one.
template <class T>
__device__ void prefetch_next_chunk(const FusedParams& p, const ShrinkItem& item,
                                    const LoraWeight& a) {
  constexpr int kLine = 128 / sizeof(T), kLines = kChunkFeatures / kLine;
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = item.first_rank + thread / kLines;
  const int feature = (item.chunk + 1) * kChunkFeatures + thread % kLines * kLine;
  if (thread >= kTileRanks * kLines || rank >= a.rank || feature >= p.in_features) return;
  if (a.data == nullptr) return;
  prefetch(static_cast<const T*>(a.data) + (rank * static_cast<int>(a.row_stride) + feature));
}

template <class T, bool kAligned>
__device__ void multiply_shrink(const FusedParams& p, const ShrinkItem& item, ShrinkData& data,
                                WarpSums& sums) {
  multiply_tiles<T>(item, data, sums, [&](int row) {
    load_x<T, kAligned>(p, item, p.plan->tiles[item.index].rows[row], row, data);
  });
}

/// A work item of expand: 256 or 512 outputs of B times all ranks, for the rows of a row tile.
struct ExpandItem {
  int row_tile, slot, slice, num_rows, max_rank;
  int output;   // the first one of this lane
  int partial;  // row of the partial sums: of chunk 0, the first ranks and the first row
  Reciprocal row_reciprocal;
  int rows;  // rows 2 q (low half) and 2 q + 1 (high half) of the row tile, as rows of the window

  ExpandItem() = default;
  __device__ ExpandItem(const FusedParams& p, int num_partials, int item, bool double_width) {
    row_tile = divide(item, p.row_tile_reciprocal[double_width]);
    const RowTile& from = p.plan->row_tiles[min(row_tile, kWindowRows - 1)];
    const int4 head = *reinterpret_cast<const int4*>(&from);
    int local = item - row_tile * p.items_per_row_tile[double_width];
    slice = 0;
#pragma unroll
    for (int i = 0; i < kMaxSlices - 1; ++i) slice += local >= p.end[double_width][i];
    if (slice > 0) local -= p.end[double_width][slice - 1];
    output = local * (kTileOutputs << double_width) + output_of_lane(0);
    slot = head.x;
    num_rows = head.y & 0xffff;
    max_rank = (head.y >> 16) * kTileRanks;
    row_reciprocal.multiplier = static_cast<uint32_t>(head.w);
    partial = slice * p.num_chunks * num_partials + from.first_partial;
    rows = reinterpret_cast<const int*>(from.rows)[lane_q()];
  }
  /// Goes on to the next outputs of the slice. False where the slice has no more.
  __device__ bool advance(const FusedParams& p, int num_outputs) {
    output += num_outputs;
    return output - output_of_lane(0) < p.slices[slice].width;
  }
};

/// B of an item of expand, from this lane's first output on.
template <class T, bool kAligned>
struct ExpandWeight {
  const T* data = nullptr;
  Offset<kAligned> stride = 0;
  int rank = 0;  // 0: nothing to do
  float scale = 0.0f;

  ExpandWeight() = default;
  __device__ ExpandWeight(const FusedParams& p, const ExpandItem& item) {
    const LoraWeight a = read_entry(p.a, p.a_stride, item.slot, item.slice);
    const LoraWeight b = read_entry(p.b, p.b_stride, item.slot, item.slice);
    stride = static_cast<Offset<kAligned>>(b.row_stride);
    data = static_cast<const T*>(b.data) + item.output * stride;
    rank = min(min(a.rank, b.rank), min(item.max_rank, p.max_rank));
    if (a.data == nullptr || b.data == nullptr) rank = 0;
    scale = p.scale * b.scale;
  }
};

/// What a lane multiplies, and what y holds before:
///   up to 16 ranks   b[output][half of the item] has the ranks 4 q + [0, 4) in its first two words
///   more             b[output][block of 32 of 64 ranks] has the ranks 8 q + [0, 8) of it
///   old              [half of the item][row 2 q or 2 q + 1], four outputs each
struct ExpandData {
  uint4 b[4][2];
  uint2 old[2][2];
};

/// Loads B of 64 ranks from first_rank on. `left`: outputs of the item from this lane's first one
/// on.
template <class T, bool kAligned, bool kHasRankAbove16>
__device__ void load_b(const ExpandWeight<T, kAligned>& w, int left, int first_rank,
                       ExpandData& to) {
  const int q = lane_q();
  // Where all is aligned, either all four outputs of a lane exist or none of them does.
  const auto in_range = [&](int output) { return (kAligned ? output / 4 * 4 : output) < left; };
  const auto load_narrow = [&] {
#pragma unroll
    for (int i = 0; i < (kHasRankAbove16 ? 4 : 8); ++i) {
      const int output = i / 4 * kTileOutputs + i % 4;
      const uint2 v =
          load_4<kAligned>(in_range(output), w.data + (output * w.stride + 4 * q), w.rank - 4 * q);
      to.b[i % 4][i / 4] = {v.x, v.y, 0, 0};
    }
  };
  if constexpr (kHasRankAbove16) {
    if (w.rank <= kTileRanks) return load_narrow();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int first = first_rank + i % 2 * kHBlockRanks + 8 * q;
      to.b[i / 2][i % 2] =
          load_8<kAligned>(in_range(i / 2), w.data + (i / 2 * w.stride + first), w.rank - first);
    }
  } else {
    load_narrow();
  }
}

/// The address of this lane's outputs in row 2 q + j.
template <class T, bool kAligned>
__device__ T* outputs_of(const FusedParams& p, const ExpandItem& item, int j) {
  const FusedSlice& slice = p.slices[item.slice];
  const int row = item.rows >> 16 * j & 0xffff;
  return static_cast<T*>(slice.y) +
         (row * static_cast<Offset<kAligned>>(slice.y_stride) + item.output);
}

/// Loads what y holds for 8 rows from first_row on. With ranks above 16 an item has one half alone.
template <class T, bool kAligned, bool kHasRankAbove16>
__device__ void load_old(const FusedParams& p, const ExpandItem& item, int left, int first_row,
                         ExpandData& to) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool is_row = first_row + lane_q() * 2 + j < item.num_rows;
    const T* from = outputs_of<T, kAligned>(p, item, j);
#pragma unroll
    for (int half = 0; half < (kHasRankAbove16 ? 1 : 2); ++half) {
      to.old[half][j] = load_output_4<kAligned>(from + half * kTileOutputs,
                                                is_row ? left - half * kTileOutputs : 0);
    }
  }
}

/// Outputs of an item from this lane's first one on, at most num_outputs.
__device__ inline int outputs_left(const FusedParams& p, const ExpandItem& item, int num_outputs) {
  return min(p.slices[item.slice].width - item.output, num_outputs);
}

template <class T, bool kAligned, bool kHasRankAbove16>
__device__ void load_expand(const FusedParams& p, const ExpandItem& item,
                            const ExpandWeight<T, kAligned>& w, int num_outputs, ExpandData& to) {
  const int left = outputs_left(p, item, num_outputs);
  load_b<T, kAligned, kHasRankAbove16>(w, left, 0, to);
  load_old<T, kAligned, kHasRankAbove16>(p, item, left, 0, to);
}

/// Adds the products of 8 rows. is_narrow: all of up to 16 ranks, for one half of the item.
/// Otherwise the 64 ranks that `data` has, `left` of which exist.
template <class T, bool kHasRankAbove16>
__device__ void multiply_expand(const HBlock* h, const ExpandData& data, int tile, int half,
                                bool is_narrow, int left, float (&sum)[2][4]) {
  const int lane = threadIdx.x % 32;
  const auto multiply = [&](const uint4& v, int block, int step) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint4 &low = data.b[2 * pair][block], &high = data.b[2 * pair + 1][block];
      const uint32_t a[4] = {word(low, 2 * step), word(high, 2 * step), word(low, 2 * step + 1),
                             word(high, 2 * step + 1)};
      mma_m16n8k16<T>(sum[pair], a, v.x, v.y);
      mma_m16n8k16<T>(sum[pair], a, v.z, v.w);
    }
  };
  multiply(h[0][0][tile][lane], half, 0);
  if (!kHasRankAbove16 || is_narrow) return;
  multiply(h[0][1][tile][lane], 0, 1);
  if (left <= kHBlockRanks) return;
  multiply(h[1][0][tile][lane], 1, 0);
  multiply(h[1][1][tile][lane], 1, 1);
}

/// Adds the sums of 8 rows and one half of the item to y. `left`: outputs of this lane, up to four.
template <class T, bool kAligned>
__device__ void write_rows(const FusedParams& p, const ExpandItem& item, float scale, int first_row,
                           int half, int left, const uint2 (&old)[2], const float (&sum)[2][4]) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (first_row + lane_q() * 2 + j >= item.num_rows) return;
    float factor = scale;
    if (p.row_scale != nullptr) factor *= p.row_scale[item.rows >> 16 * j & 0xffff];
    const auto finish_two = [&](uint32_t two, const float(&of)[4]) {
      const float2 v = widen_two<T>(two);
      return narrow_two<T>({__fmaf_rn(factor, of[j], v.x), __fmaf_rn(factor, of[2 + j], v.y)});
    };
    const uint2 v{finish_two(old[j].x, sum[0]), finish_two(old[j].y, sum[1])};
    T* y = outputs_of<T, kAligned>(p, item, j) + half * kTileOutputs;
    if constexpr (kAligned) {
      *reinterpret_cast<uint2*>(y) = v;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto bits = static_cast<uint16_t>((k < 2 ? v.x : v.y) >> k % 2 * 16);
        if (k < left) reinterpret_cast<uint16_t*>(y)[k] = bits;
      }
    }
  }
}

/// Puts h of up to 64 ranks from first_rank on into shared memory. Each thread adds up one value of
/// a row at a time. False where the sums of another block did not come in time. All threads call
/// it.
template <class T>
__device__ bool gather_h(const FusedParams& p, AlignedShared& s, int num_partials,
                         const ExpandItem& item, int rank, int first_rank) {
  const bool is_narrow = rank <= kTileRanks;
  const int num = min(kWideRanks, rank - first_rank), num_rows = item.num_rows;
  const int count = ceil_div(num, kTileRanks) * num_rows * kTileRanks;
  const int chunk_stride = num_partials * kTileRanks;
  const FlaggedWord* words =
      static_cast<const FlaggedWord*>(p.partials) +
      int64_t{item.partial + first_rank / kTileRanks * num_rows} * kTileRanks;
  // Four lanes a value where there are many chunks and few values. With few chunks one lane a value
  // makes fewer requests.
  const bool is_by_four = p.num_chunks > kChains && count <= kBlockThreads / 4;
  bool all_ready = true;
  clear_h(s.h, is_narrow, num);
#pragma unroll 1
  for (int i = is_by_four ? threadIdx.x / 4 : threadIdx.x; i < count; i += kBlockThreads) {
    float h;
    if (is_by_four) {
      all_ready &= sum_chunks_by_four(p, s.flag, words + i, chunk_stride, h);
      if (threadIdx.x % 4 != 0) break;
    } else {
      all_ready &= sum_chunks(p, s.flag, words + i, chunk_stride, h);
    }
    const int row = i / kTileRanks, tile = divide(row, item.row_reciprocal);
    const int r = tile * kTileRanks + i % kTileRanks;
    store_h<T>(s.h, is_narrow, row - tile * num_rows, r, r < num ? h : 0.0f);
  }
  return __syncthreads_and(all_ready);
}

/// Multiplies an item whose first data have been loaded, and adds the result to y. is_cached:
/// shared memory holds h of its row tile and slice already. Returns false, and has written nothing,
/// where the sums of another block did not come in time.
template <class T, bool kAligned, bool kHasRankAbove16>
__device__ bool finish_expand(const FusedParams& p, AlignedShared& s, int num_partials,
                              ExpandItem item, const ExpandWeight<T, kAligned>& w, int num_outputs,
                              bool is_cached, ExpandData& data) {
  const int left = outputs_left(p, item, num_outputs);
#pragma unroll 1
  for (int row = 0;;) {
#pragma unroll
    for (int half = 0; half < (kHasRankAbove16 ? 1 : 2); ++half) {
      float sum[2][4] = {};
#pragma unroll 1
      for (int rank = 0; half * kTileOutputs < num_outputs;) {
        // More than 64 ranks of h do not fit, so h is gathered again for the second 8 rows. Its
        // sums are there by then.
        if ((row == 0 && half == 0 && !is_cached) || (kHasRankAbove16 && w.rank > kWideRanks)) {
          __syncthreads();
          if (!gather_h<T>(p, s, num_partials, item, w.rank, rank)) return false;
        }
        multiply_expand<T, kHasRankAbove16>(s.h, data, row / kProductTileRows, half,
                                            w.rank <= kTileRanks, w.rank - rank, sum);
        rank += kWideRanks;
        if (!kHasRankAbove16 || rank >= w.rank) break;
        load_b<T, kAligned, kHasRankAbove16>(w, left, rank, data);
      }
      if (half * kTileOutputs < left) {
        write_rows<T, kAligned>(p, item, w.scale, row, half, left - half * kTileOutputs,
                                data.old[half], sum);
      }
    }
    row += kProductTileRows;
    if (row >= item.num_rows) return true;
    item.rows = reinterpret_cast<const int*>(p.plan->row_tiles[item.row_tile].rows)[4 + lane_q()];
    load_old<T, kAligned, kHasRankAbove16>(p, item, left, row, data);
    if (kHasRankAbove16 && w.rank > kWideRanks)
      load_b<T, kAligned, kHasRankAbove16>(w, left, 0, data);
  }
}

/// Computes all partial sums of a row tile again, those of other blocks too, and publishes them.
/// The bits are the same, so it does not matter which block's sums others read.
template <class T, bool kAligned>
__device__ void recompute_sums(const FusedParams& p, AlignedShared& s, int num_partials,
                               const ExpandItem& item, int rank) {
  const int first_tile = p.plan->row_tiles[item.row_tile].first_tile;
  const int num_tiles = ceil_div(rank, kTileRanks);
#pragma unroll 1
  for (int i = 0; i < num_tiles * p.num_chunks; ++i) {
    const int tile = divide(i, p.chunk_reciprocal), chunk = i - tile * p.num_chunks;
    const ShrinkItem shrink(
        p, *p.plan, num_partials,
        ((first_tile + tile) * p.num_slices + item.slice) * p.num_chunks + chunk);
    ShrinkData data;
    load_shrink<T, kAligned>(p, shrink, read_entry(p.a, p.a_stride, shrink.slot, shrink.slice),
                             data);
    __syncthreads();
    multiply_shrink<T, kAligned>(p, shrink, data, s.sums[0]);
    __syncthreads();
    publish_sums(p.partials, s.flag, shrink.partial, shrink.num_rows, s.sums[0]);
  }
}

}  // namespace heddle::cuda::lora
