#pragma once

#include "ops/lora/device/gather_cuda.h"
#include "ops/lora/device/outputs_cuda.h"
#include "ops/lora/fused/fused_cuda.h"

namespace heddle::cuda {

// lora_apply in one launch, in as few instructions as can be: at few adapters a call is one chain of
// latencies, of instructions, too. What a block multiplies goes from memory straight to registers; the
// blocks of a multiprocessor hide one another's latencies.

struct LoraDirectShared {
  uint32_t flag;  // of this launch
  alignas(16) LoraTileSums sums[2];
  LoraPieceOfH h[kWidePiece / kHPiece];
};

/// The weight of a slot and slice, of entries that begin with those of the first slice.
__device__ inline LoraWeight read_entry(const LoraWeight* entries, int stride, int slot,
                                        int slice) {
  return entries[slot * stride + slice];
}

/// Elements [0, min(8, n)) of a row, zeros behind them, or zeros where is_there is false. kAligned: 16 bytes aligned, n is a
/// multiple of 8.
template <bool kAligned, class T>
__device__ uint4 load_8(bool is_there, const T* p, int n) {
  if constexpr (kAligned) {
    return is_there && n > 0 ? load_once_16(p) : uint4{0, 0, 0, 0};
  } else {
    return gather_8(p, 1, is_there ? n : 0);
  }
}
/// The same of 4 elements.
template <bool kAligned, class T>
__device__ uint2 load_4(bool is_there, const T* p, int n) {
  if constexpr (kAligned) {
    return is_there && n > 0 ? load_once_8(p) : uint2{0, 0};
  } else {
    const uint4 v = gather_8(p, 1, is_there ? min(n, 4) : 0);
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

/// Sums kNum strands from that of *word on, asking for kDeep words of each until all are there; `left` chunks follow it.
template <int kNum, int kDeep>
__device__ bool sum_strands(const LoraDirectParams& p, uint32_t flag, const FlaggedWord* word,
                            int chunk_stride, int left, float (&sum)[kNum]) {
#pragma unroll
  for (float& s : sum) s = kNoSum;
  uint32_t spins = 0;
#pragma unroll 1
  for (; left > 0; left -= kDeep * kLoraStrands) {
    FlaggedWord v[kDeep][kNum];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kDeep * kNum; ++i) {
        const int chunk = i / kNum * kLoraStrands + i % kNum;
        FlaggedWord& to = v[i / kNum][i % kNum];
        to = peek(word + (chunk < left ? chunk * chunk_stride : 0));
        ready &= to.flag == flag;
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kDeep * kNum; ++i) {
      const int chunk = i / kNum * kLoraStrands + i % kNum;
      sum[i % kNum] += chunk < left ? v[i / kNum][i % kNum].value : kNoSum;
    }
    word += kDeep * kLoraStrands * chunk_stride;
  }
  return true;
}

/// h of one row and rank, whose partial sum of the first chunk is *word.
__device__ inline bool sum_chunks(const LoraDirectParams& p, uint32_t flag, const FlaggedWord* word,
                                  int chunk_stride, float& h) {
  float sum[kLoraStrands];
  if (!sum_strands<kLoraStrands, 1>(p, flag, word, chunk_stride, p.num_chunks, sum)) return false;
  h = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  return true;
}

/// The same by four lanes, which all get it; whole warps call it.
__device__ inline bool sum_chunks_by_four(const LoraDirectParams& p, uint32_t flag,
                                          const FlaggedWord* word, int chunk_stride, float& h) {
  const int first = threadIdx.x % 4 * 2;
  float sum[2];
  const bool is_there = sum_strands<2, 4>(p, flag, word + first * chunk_stride, chunk_stride,
                                          p.num_chunks - first, sum);
  h = sum[0] + sum[1];
  h += __shfl_xor_sync(kAllLanes, h, 1);
  h += __shfl_xor_sync(kAllLanes, h, 2);
  return is_there;
}

/// x of row `row`, which is row `row_of_part` of the part.
template <class T, bool kAligned>
__device__ void load_x(const LoraDirectParams& p, const ShrinkUnit& unit, int row, int row_of_part,
                       ShrinkData& to) {
  const T* x =
      static_cast<const T*>(p.u) + (row * static_cast<Offset<kAligned>>(p.u_stride) + unit.feature);
  const int left = row_of_part < unit.num_rows ? p.in_features - unit.feature : 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (kAligned) {  // other blocks read the same rows
      to.x[i] = 32 * i < left ? *reinterpret_cast<const uint4*>(x + 32 * i) : uint4{0, 0, 0, 0};
    } else {
      to.x[i] = gather_8(x + 32 * i, 1, left - 32 * i);
    }
  }
}

template <class T, bool kAligned>
__device__ void load_shrink(const LoraDirectParams& p, const ShrinkUnit& unit, const LoraWeight& a,
                            ShrinkData& to) {
  const auto stride = static_cast<Offset<kAligned>>(a.row_stride);
  const int rank = unit.first_rank + lane_g();
  const T* low = static_cast<const T*>(a.data) + (rank * stride + unit.feature);
  const T* high = low + 8 * stride;
  const int left = a.data != nullptr ? p.in_features - unit.feature : 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to.low[i] = load_8<kAligned>(rank < a.rank, low + 32 * i, left - 32 * i);
    to.high[i] = load_8<kAligned>(rank + 8 < a.rank, high + 32 * i, left - 32 * i);
  }
  load_x<T, kAligned>(p, unit, unit.row, lane_g(), to);
}

template <class T, bool kAligned>
__device__ void multiply_shrink(const LoraDirectParams& p, const ShrinkUnit& unit, ShrinkData& data,
                                LoraTileSums& sums) {
  multiply_tiles<T>(unit, data, sums, [&](int row) {
    load_x<T, kAligned>(p, unit, p.plan->tiles[unit.index].rows[row], row, data);
  });
}

/// One unit of expand: 256 outputs of B, or twice as many, times all ranks, times the rows of a part. A warp has 32 of the
/// outputs of either half, a lane four.
struct ExpandUnit {
  int part, slot, slice, num_rows, max_rank;
  int output;   // the first of this lane
  int partial;  // row of partials of the first row
  uint32_t row_reciprocal;
  int rows;  // 2 q and 2 q + 1 of the part, 16 bits each

  ExpandUnit() = default;
  __device__ ExpandUnit(const LoraDirectParams& p, int num_partials, int unit, bool twice) {
    part = divide(unit, p.part_reciprocal[twice]);
    const LoraPart& from = p.plan->parts[min(part, kLoraWindow - 1)];
    const int4 head = *reinterpret_cast<const int4*>(&from);
    int local = unit - part * p.items_per_part[twice];
    slice = 0;
#pragma unroll
    for (int i = 0; i < kLoraMaxSlices - 1; ++i) slice += local >= p.end[twice][i];
    if (slice > 0) local -= p.end[twice][slice - 1];
    output = local * (kLoraOutTile << twice) + output_of_lane(0);
    slot = head.x;
    num_rows = head.y & 0xffff;
    max_rank = (head.y >> 16) * kLoraRankTile;
    row_reciprocal = static_cast<uint32_t>(head.w);
    partial = slice * p.num_chunks * num_partials + from.first_partial;
    rows = reinterpret_cast<const int*>(from.rows)[lane_q()];
  }
  /// To the next outputs of the slice; false where it has no more.
  __device__ bool advance(const LoraDirectParams& p, int num_outputs) {
    output += num_outputs;
    return output - output_of_lane(0) < p.slices[slice].width;
  }
};

/// Of a unit of expand: B from this lane's first output on.
template <class T, bool kAligned>
struct ExpandWeight {
  const T* data = nullptr;
  Offset<kAligned> stride = 0;
  int rank = 0;  // 0: nothing to do
  float scale = 0.0f;

  ExpandWeight() = default;
  __device__ ExpandWeight(const LoraDirectParams& p, const ExpandUnit& unit) {
    const LoraWeight a = read_entry(p.a, p.a_stride, unit.slot, unit.slice);
    const LoraWeight b = read_entry(p.b, p.b_stride, unit.slot, unit.slice);
    stride = static_cast<Offset<kAligned>>(b.row_stride);
    data = static_cast<const T*>(b.data) + unit.output * stride;
    rank = min(min(a.rank, b.rank), min(unit.max_rank, p.max_rank));
    if (a.data == nullptr || b.data == nullptr) rank = 0;
    scale = p.scale * b.scale;
  }
};

/// What a lane (g, q) multiplies. Wide: ranks 8 q + [0, 8) of each 32 of 64, of its four outputs. Ranks up to 16: 4 q + [0, 4) of
/// its outputs in either half. `old`: what the rows 2 q and 2 q + 1 hold in either half.
struct ExpandData {
  uint4 b[4][2];
  uint2 old[2][2];
};

/// `left` outputs of the unit follow this lane's first one.
template <class T, bool kAligned, bool kIsWide>
__device__ void load_b(const ExpandWeight<T, kAligned>& w, int left, int first_rank,
                       ExpandData& to) {
  const int q = lane_q();
  // Aligned, all four outputs of a lane are there or none.
  const auto is_there = [&](int output) { return (kAligned ? output / 4 * 4 : output) < left; };
  const auto load_narrow = [&] {
#pragma unroll
    for (int i = 0; i < (kIsWide ? 4 : 8); ++i) {
      const int output = i / 4 * kLoraOutTile + i % 4;
      const uint2 v =
          load_4<kAligned>(is_there(output), w.data + (output * w.stride + 4 * q), w.rank - 4 * q);
      to.b[i % 4][i / 4] = {v.x, v.y, 0, 0};
    }
  };
  if constexpr (kIsWide) {
    if (w.rank <= kLoraRankTile) return load_narrow();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int first = first_rank + i % 2 * kHPiece + 8 * q;
      to.b[i / 2][i % 2] =
          load_8<kAligned>(is_there(i / 2), w.data + (i / 2 * w.stride + first), w.rank - first);
    }
  } else {
    load_narrow();
  }
}

/// Where row 2 q + j has this lane's outputs.
template <class T, bool kAligned>
__device__ T* outputs_of(const LoraDirectParams& p, const ExpandUnit& unit, int j) {
  const LoraDirectSlice& slice = p.slices[unit.slice];
  const int row = unit.rows >> 16 * j & 0xffff;
  return static_cast<T*>(slice.y) +
         (row * static_cast<Offset<kAligned>>(slice.y_stride) + unit.output);
}

/// Of a tile of rows; wide units have one half.
template <class T, bool kAligned, bool kIsWide>
__device__ void load_old(const LoraDirectParams& p, const ExpandUnit& unit, int left, int first_row,
                         ExpandData& to) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool is_row = first_row + lane_q() * 2 + j < unit.num_rows;
    const T* from = outputs_of<T, kAligned>(p, unit, j);
#pragma unroll
    for (int half = 0; half < (kIsWide ? 1 : 2); ++half) {
      to.old[half][j] = load_output_4<kAligned>(from + half * kLoraOutTile,
                                                is_row ? left - half * kLoraOutTile : 0);
    }
  }
}

/// Outputs of a unit that follow its lane's first one, at most num_outputs.
__device__ inline int outputs_left(const LoraDirectParams& p, const ExpandUnit& unit,
                                   int num_outputs) {
  return min(p.slices[unit.slice].width - unit.output, num_outputs);
}

template <class T, bool kAligned, bool kIsWide>
__device__ void load_expand(const LoraDirectParams& p, const ExpandUnit& unit,
                            const ExpandWeight<T, kAligned>& w, int num_outputs, ExpandData& to) {
  const int left = outputs_left(p, unit, num_outputs);
  load_b<T, kAligned, kIsWide>(w, left, 0, to);
  load_old<T, kAligned, kIsWide>(p, unit, left, 0, to);
}

/// Adds 64 ranks, of which `left` are there, for one tile of rows; ranks up to 16 those of a half.
template <class T, bool kIsWide>
__device__ void multiply_expand(const LoraPieceOfH* h, const ExpandData& data, int tile, int half,
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
  if (!kIsWide || is_narrow) return;
  multiply(h[0][1][tile][lane], 0, 1);
  if (left <= kHPiece) return;
  multiply(h[1][0][tile][lane], 1, 0);
  multiply(h[1][1][tile][lane], 1, 1);
}

/// Adds a half of a tile of rows to y, where this lane has `left` outputs.
template <class T, bool kAligned>
__device__ void write_rows(const LoraDirectParams& p, const ExpandUnit& unit, float scale,
                           int first_row, int half, int left, const uint2 (&old)[2],
                           const float (&sum)[2][4]) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (first_row + lane_q() * 2 + j >= unit.num_rows) return;
    float factor = scale;
    if (p.row_scale != nullptr) factor *= p.row_scale[unit.rows >> 16 * j & 0xffff];
    const auto finish_two = [&](uint32_t two, const float(&of)[4]) {
      const float2 v = widen_two<T>(two);
      return narrow_two<T>({__fmaf_rn(factor, of[j], v.x), __fmaf_rn(factor, of[2 + j], v.y)});
    };
    const uint2 v{finish_two(old[j].x, sum[0]), finish_two(old[j].y, sum[1])};
    T* y = outputs_of<T, kAligned>(p, unit, j) + half * kLoraOutTile;
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

/// h of up to 64 ranks from first_rank on into shared memory: each thread adds up one value of a row at a time. False where
/// another block's sums did not come in time. All threads of the block call it.
template <class T>
__device__ bool gather_h(const LoraDirectParams& p, LoraDirectShared& s, int num_partials,
                         const ExpandUnit& unit, int rank, int first_rank) {
  const bool is_narrow = rank <= kLoraRankTile;
  const int num = min(kWidePiece, rank - first_rank), num_rows = unit.num_rows;
  const int count = (num + kLoraRankTile - 1) / kLoraRankTile * num_rows * kLoraRankTile;
  const int chunk_stride = num_partials * kLoraRankTile;
  const FlaggedWord* words =
      static_cast<const FlaggedWord*>(p.partials) +
      int64_t{unit.partial + first_rank / kLoraRankTile * num_rows} * kLoraRankTile;
  // With many chunks, where threads are left; few chunks cost fewer requests with one thread a value.
  const bool is_by_four = p.num_chunks > kLoraStrands && count <= kLoraThreads / 4;
  bool is_there = true;
  clear_h(s.h, is_narrow, num);
#pragma unroll 1
  for (int i = is_by_four ? threadIdx.x / 4 : threadIdx.x; i < count; i += kLoraThreads) {
    float h;
    if (is_by_four) {
      is_there &= sum_chunks_by_four(p, s.flag, words + i, chunk_stride, h);
      if (threadIdx.x % 4 != 0) break;
    } else {
      is_there &= sum_chunks(p, s.flag, words + i, chunk_stride, h);
    }
    const int row = i / kLoraRankTile, tile = divide(row, unit.row_reciprocal);
    const int r = tile * kLoraRankTile + i % kLoraRankTile;
    store_h<T>(s.h, is_narrow, row - tile * num_rows, r, r < num ? h : 0.0f);
  }
  return __syncthreads_and(is_there);
}

/// Adds all ranks to y, where the unit's data are on their way. is_held: h of its part and slice lies in shared memory. False,
/// and nothing is written, where sums did not come in time.
template <class T, bool kAligned, bool kIsWide>
__device__ bool finish_expand(const LoraDirectParams& p, LoraDirectShared& s, int num_partials,
                              ExpandUnit unit, const ExpandWeight<T, kAligned>& w, int num_outputs,
                              bool is_held, ExpandData& data) {
  const int left = outputs_left(p, unit, num_outputs);
#pragma unroll 1
  for (int row = 0;;) {
#pragma unroll
    for (int half = 0; half < (kIsWide ? 1 : 2); ++half) {
      float sum[2][4] = {};
#pragma unroll 1
      for (int rank = 0; half * kLoraOutTile < num_outputs;) {
        // Where h does not fit shared memory at once it is made again for the second tile; the sums are there by then.
        if ((row == 0 && half == 0 && !is_held) || (kIsWide && w.rank > kWidePiece)) {
          __syncthreads();
          if (!gather_h<T>(p, s, num_partials, unit, w.rank, rank)) return false;
        }
        multiply_expand<T, kIsWide>(s.h, data, row / kTileRows, half, w.rank <= kLoraRankTile,
                                    w.rank - rank, sum);
        rank += kWidePiece;
        if (!kIsWide || rank >= w.rank) break;
        load_b<T, kAligned, kIsWide>(w, left, rank, data);
      }
      if (half * kLoraOutTile < left) {
        write_rows<T, kAligned>(p, unit, w.scale, row, half, left - half * kLoraOutTile,
                                data.old[half], sum);
      }
    }
    row += kTileRows;
    if (row >= unit.num_rows) return true;
    unit.rows = reinterpret_cast<const int*>(p.plan->parts[unit.part].rows)[4 + lane_q()];
    load_old<T, kAligned, kIsWide>(p, unit, left, row, data);
    if (kIsWide && w.rank > kWidePiece) load_b<T, kAligned, kIsWide>(w, left, 0, data);
  }
}

/// Makes the partial sums of a part that other blocks have not made yet: the same bits.
template <class T, bool kAligned>
__device__ void remake_sums(const LoraDirectParams& p, LoraDirectShared& s, int num_partials,
                            const ExpandUnit& unit, int rank) {
  const int first_tile = p.plan->parts[unit.part].first_tile;
  const int num_tiles = (rank + kLoraRankTile - 1) / kLoraRankTile;
#pragma unroll 1
  for (int i = 0; i < num_tiles * p.num_chunks; ++i) {
    const int tile = divide(i, p.chunk_reciprocal), chunk = i - tile * p.num_chunks;
    const ShrinkUnit shrink(
        p, *p.plan, num_partials,
        ((first_tile + tile) * p.num_slices + unit.slice) * p.num_chunks + chunk);
    ShrinkData data;
    load_shrink<T, kAligned>(p, shrink, read_entry(p.a, p.a_stride, shrink.slot, shrink.slice),
                             data);
    __syncthreads();
    multiply_shrink<T, kAligned>(p, shrink, data, s.sums[0]);
    __syncthreads();
    publish_sums(p.partials, s.flag, shrink.partial, shrink.num_rows, s.sums[0]);
  }
}

}  // namespace heddle::cuda
