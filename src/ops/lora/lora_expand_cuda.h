#pragma once

#include "ops/lora/lora_shrink_cuda.h"

namespace heddle::cuda {

__device__ inline float widen(__half v) { return __half2float(v); }
__device__ inline float widen(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float widen(float v) { return v; }
template <class T>
__device__ T narrow(float v);
template <>
__device__ inline __half narrow<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ inline float narrow<float>(float v) {
  return v;
}

/// Calls f with a value of the type that holds `dtype`.
template <class F>
__device__ void with_type(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) {
    f(float{});
  } else if (dtype == DType::kFloat16) {
    f(__half{});
  } else {
    f(__nv_bfloat16{});
  }
}
/// The same where the dtype is known to be T's.
template <bool kIsT, class T, class F>
__device__ void with_type_or(DType dtype, F&& f) {
  if constexpr (kIsT) {
    f(T{});
  } else {
    with_type(dtype, f);
  }
}

/// A range of outputs (of shrink: of ranks) of one slice, for the rows of one part.
struct ExpandUnit {
  const LoraPart& part;
  int slice, first;  // output or rank
};

template <LoraOp kOp>
__device__ ExpandUnit expand_unit(const LoraParams& p, int item) {
  const int part = divide(item, p.part_reciprocal);
  int local = item - part * p.items_per_part, slice = 0;
  while (local >= p.slices[slice].end) ++slice;
  if (slice > 0) local -= p.slices[slice - 1].end;
  return {p.plan->parts[part], slice,
          local * (kOp == LoraOp::kShrink ? kRankPiece : kLoraOutTile)};
}

/// First output of this lane, which has four: those of the warp are 32.
__device__ inline int first_output(const ExpandUnit& u) {
  return u.first + static_cast<int>(threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4 * 4);
}

/// The weight that decides what a unit does; rank 0 where the adapter does not touch the slice.
template <LoraOp kOp>
__device__ LoraWeight weight_of(const LoraParams& p, const ExpandUnit& u) {
  LoraWeight a, b;  // both on their way at once
  if constexpr (kOp != LoraOp::kExpand) a = read_weight(p.a, u.part.slot, u.slice);
  if constexpr (kOp == LoraOp::kShrink) b = a;
  if constexpr (kOp != LoraOp::kShrink) b = read_weight(p.b, u.part.slot, u.slice);
  if constexpr (kOp == LoraOp::kApply) b.rank = a.data == nullptr ? 0 : min(b.rank, a.rank);
  b.rank = b.data == nullptr ? 0 : min(b.rank, u.part.num_tiles * kLoraRankTile);
  return b;
}

/// Outputs first + i of B, i < 4, in vector i: of ranks up to 16 lane q has 4 q + [0, 4), of more it has, of the 32 from
/// first_rank on, 8 q + [0, 8). Where the outputs are plain and this is the last piece, vector 4 has what the rows 2 q and
/// 2 q + 1 hold there.
template <class T, bool kPlain>
__device__ void fetch_expand(const LoraParams& p, const ExpandUnit& u, const LoraWeight& weight,
                             int first_rank, LoraSlot& slot) {
  const LoraSliceParams& slice = p.slices[u.slice];
  const int n = first_output(u), q = threadIdx.x % 4;
  const bool is_narrow = weight.rank <= kLoraRankTile;
  const LoraOperand<T> b(weight, p.is_transposed_b, is_narrow ? 8 : 16);
  uint4* to = &slot[0][threadIdx.x];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = is_narrow ? 4 * q : first_rank + 8 * q;
    const int count = n + i < slice.width ? weight.rank - r : 0;
    if (!is_narrow) {
      fetch_8<kPlain>(to + i * kLoraThreads, b, n + i, r, count);
    } else if (kPlain || (count >= 4 && b.in_lines)) {
      const bool is_there = count > 0;
      copy_async_8(to + i * kLoraThreads,
                   is_there ? b.data + (n + i) * b.m_stride + r : b.data, is_there);
    } else {
      const T* from = b.data + (n + i) * b.m_stride + r * b.k_stride;
      to[i * kLoraThreads] = count > 0 ? gather_8(from, b.k_stride, min(count, 4)) : uint4{};
    }
  }
  if constexpr (kPlain) {
    if (first_rank + kRankPiece < weight.rank) return;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const bool is_there = p.accumulate && 2 * q + j < u.part.num_rows && n < slice.width;
      const T* y = static_cast<const T*>(slice.y);
      if (is_there) y += u.part.rows[2 * q + j] * slice.y_stride + n;
      copy_async_8(reinterpret_cast<uint2*>(to + 4 * kLoraThreads) + j, y, is_there);
    }
  }
}

template <class Y>
struct alignas(4 * sizeof(Y)) FourOf {
  Y v[4];
};

/// What row i of the part holds at this lane's four outputs; kPlain: of type T.
template <class T, bool kPlain>
__device__ uint4 load_old(const LoraParams& p, const ExpandUnit& u, int i) {
  const LoraSliceParams& slice = p.slices[u.slice];
  const int n = first_output(u);
  uint4 raw{0, 0, 0, 0};
  if (!p.accumulate || i >= u.part.num_rows || n >= slice.width) return raw;
  const int row = u.part.rows[i];
  with_type_or<kPlain, T>(p.y_dtype, [&](auto type) {
    using Y = decltype(type);
    const Y* y = static_cast<const Y*>(slice.y) + row * slice.y_stride + n;
    FourOf<Y> four{};
    if (kPlain || (n + 4 <= slice.width && reinterpret_cast<uintptr_t>(y) % sizeof(four) == 0)) {
      four = *reinterpret_cast<const FourOf<Y>*>(y);
    } else {
      for (int k = 0; k < 4; ++k) {
        if (n + k < slice.width) four.v[k] = y[k];
      }
    }
    *reinterpret_cast<FourOf<Y>*>(&raw) = four;
  });
  return raw;
}

/// y (+)= factor * sum, where y is one element.
template <class Y>
__device__ Y finish(Y old, float factor, float sum, bool accumulate) {
  return narrow<Y>(accumulate ? __fmaf_rn(factor, sum, widen(old)) : factor * sum);
}

template <class T, bool kPlain>
__device__ void write_outputs(const LoraParams& p, const ExpandUnit& u, int i,
                              const float (&sum)[4], float scale, const uint4& old) {
  const LoraSliceParams& slice = p.slices[u.slice];
  const int n = first_output(u);
  if (i >= u.part.num_rows || n >= slice.width) return;
  const int row = u.part.rows[i];
  const float factor = p.row_scale != nullptr ? scale * p.row_scale[row] : scale;
  with_type_or<kPlain, T>(p.y_dtype, [&](auto type) {
    using Y = decltype(type);
    Y* y = static_cast<Y*>(slice.y) + row * slice.y_stride + n;
    FourOf<Y> four = *reinterpret_cast<const FourOf<Y>*>(&old);
#pragma unroll
    for (int k = 0; k < 4; ++k) four.v[k] = finish(four.v[k], factor, sum[k], p.accumulate);
    if (kPlain || (n + 4 <= slice.width && reinterpret_cast<uintptr_t>(y) % sizeof(four) == 0)) {
      *reinterpret_cast<FourOf<Y>*>(y) = four;
    } else {
      for (int k = 0; k < 4; ++k) {
        if (n + k < slice.width) y[k] = four.v[k];
      }
    }
  });
}

/// The partial sum of one chunk; where flagged, false until it is there.
template <bool kFlagged>
__device__ bool read_partial(const LoraParams& p, uint32_t flag, int64_t at, float& v) {
  if constexpr (kFlagged) {
    const FlaggedWord w = peek(static_cast<const FlaggedWord*>(p.partials) + at);
    v = w.value;
    return w.flag == flag;
  } else {
    v = static_cast<const float*>(p.partials)[at];
    return true;
  }
}

/// Sums the strand of this lane for `num` values, asking for all words again until all are there.
template <bool kFlagged, int kValues>
__device__ bool sum_strand(const LoraParams& p, uint32_t flag, const int64_t (&first)[kValues],
                           int64_t chunk_stride, int num, float (&sum)[kValues]) {
  const int strand = threadIdx.x % kLoraStrands;
  uint32_t spins = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) sum[i] = 0.0f;
#pragma unroll 1
  for (int chunk = strand; chunk < p.num_chunks; chunk += kLoraStrands) {
    float v[kValues];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        v[i] = 0.0f;
        if (i < num) {
          ready &= read_partial<kFlagged>(p, flag, first[i] + chunk * chunk_stride, v[i]);
        }
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] = chunk == strand ? v[i] : sum[i] + v[i];
  }
  return true;
}

/// Calls take(row, rank - first_rank, value) with h of the part's rows for the ranks [first_rank, first_rank + 32) that
/// the plan has tiles for, on one lane each. False where another block's sums did not come in time.
template <bool kFlagged, class Take>
__device__ bool gather_partials(const LoraParams& p, const LoraShared& s, const ExpandUnit& u,
                                int first_rank, Take&& take) {
  constexpr int kBatch = 4, kStep = kLoraThreads / (kLoraRankTile * kLoraStrands);
  const int strand = threadIdx.x % kLoraStrands;
  const int rank = threadIdx.x / kLoraStrands % kLoraRankTile;
  const int first_tile = first_rank / kLoraRankTile, rows = u.part.num_rows;
  const int tiles = min(kRankPiece / kLoraRankTile, u.part.num_tiles - first_tile);
  const int count = tiles * rows;
  const int first_partial = p.plan->tiles[u.part.first_tile + first_tile].first_partial;
  const int64_t base = partial_index(p, u.slice, 0, first_partial) + rank;
  const int64_t chunk_stride = int64_t{p.plan->num_partials} * kLoraRankTile;
  bool is_there = true;
#pragma unroll 1
  for (int begin = threadIdx.x / (kLoraRankTile * kLoraStrands); begin < count;
       begin += kBatch * kStep) {
    int64_t first[kBatch];
    int num = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {  // rows of one tile, then those of the next: partials lie in this order
      const int at = begin + i * kStep;
      num += at < count;
      first[i] = base + at * kLoraRankTile;
    }
    float sum[kBatch];
    is_there &= sum_strand<kFlagged, kBatch>(p, s.flag, first, chunk_stride, num, sum);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int d = 1; d < kLoraStrands; d *= 2) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], d);
      if (strand == 0 && i < num) {
        const int at = begin + i * kStep;
        const int tile = divide(at, u.part.row_reciprocal);
        take(at - tile * rows, tile * kLoraRankTile + rank, sum[i]);
      }
    }
  }
  return is_there;
}

/// The same from a tensor h.
template <class Take>
__device__ void gather_rows(const LoraParams& p, const ExpandUnit& u, int first_rank, int rank,
                            Take&& take) {
  const int num = min(kRankPiece, rank - first_rank);
  with_type(p.u_dtype, [&](auto type) {
    using U = decltype(type);
    for (int i = threadIdx.x; i < kRankPiece * u.part.num_rows; i += kLoraThreads) {
      const int row = i / kRankPiece, r = i % kRankPiece;
      if (r >= num) continue;
      const U* from = static_cast<const U*>(p.u) + u.part.rows[row] * p.u_stride;
      take(row, r, widen(from[first_rank + r]));
    }
  });
}

/// Makes the partial sums of a piece of ranks that other blocks have not made yet: the same bits. Takes the unit's slot for
/// it, which is fetched again.
template <class T, LoraOp kOp, bool kPlain>
__device__ __noinline__ void remake_partials(const LoraParams& p, LoraShared& s,
                                             const ExpandUnit& u, int first_rank, LoraSlot& slot) {
  const int first = first_rank / kLoraRankTile;
  const int last = min(int{u.part.num_tiles}, first + kRankPiece / kLoraRankTile);
#pragma unroll 1
  for (int i = first * p.num_chunks; i < last * p.num_chunks; ++i) {
    const int tile = i / p.num_chunks;
    const ShrinkUnit unit{p.plan->tiles[u.part.first_tile + tile], u.slice,
                          i - tile * p.num_chunks};
    fetch_shrink<T, kPlain>(p, unit, slot);
    commit_copies();
    wait_for_copies<0>();
    run_shrink<T, true, kPlain>(p, s, unit, slot, i % 2);
  }
  if constexpr (kOp == LoraOp::kApply) {
    fetch_expand<T, kPlain>(p, u, weight_of<kOp>(p, u), first_rank, slot);
    commit_copies();
    wait_for_copies<0>();
  }
  __syncthreads();
}

/// Puts h[row][rank] as hi + lo where lane (g, q) of the products finds it.
template <class T>
__device__ void store_h(uint4 (&to)[kPieceSteps][kPartTiles][32], bool is_narrow, int row, int rank,
                        float h) {
  const int q = is_narrow ? rank / 4 : rank / 8;
  const int step = is_narrow ? 0 : rank % 8 / 4;
  const T hi = narrow<T>(h);
  const T lo = narrow<T>(h - widen(hi));
  T* four = reinterpret_cast<T*>(&to[step][row / kTileRows][row % kTileRows * 4 + q]);
  four[rank % 4] = hi;
  four[4 + rank % 4] = lo;
}

/// h of the ranks [first_rank, first_rank + 32) into shared memory; all threads of the block call it.
template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
__device__ void make_h(const LoraParams& p, LoraShared& s, const ExpandUnit& u, int rank,
                       int first_rank, LoraSlot& slot, int parity) {
  auto& h = s.h[parity];
  const bool is_narrow = rank <= kLoraRankTile;
  const int num = rank - first_rank;
  // Ranks that the products take, but the adapter does not have.
  const int from = min(kRankPiece, num), to = is_narrow ? 16 : kRankPiece;
  for (int i = threadIdx.x; i < kLoraPartRows * (to - from); i += kLoraThreads) {
    store_h<T>(h, is_narrow, i % kLoraPartRows, from + i / kLoraPartRows, 0.0f);
  }
  const auto take = [&](int row, int r, float value) {
    if (r < num) store_h<T>(h, is_narrow, row, r, value);
  };
  if constexpr (kOp == LoraOp::kExpand) {
    gather_rows(p, u, first_rank, rank, take);
    __syncthreads();
  } else if constexpr (kForm == LoraForm::kFused) {
    while (!__syncthreads_and(gather_partials<true>(p, s, u, first_rank, take))) {
      remake_partials<T, kOp, kPlain>(p, s, u, first_rank, slot);
    }
  } else {
    gather_partials<false>(p, s, u, first_rank, take);
    __syncthreads();
  }
}

using ExpandSums = float[kPartTiles][2][4];

/// Adds the products of one piece of ranks that was fetched.
template <class T>
__device__ void multiply(const LoraShared& s, const LoraSlot& slot, bool is_narrow, int num_tiles,
                         int parity, ExpandSums& sum) {
  const int lane = threadIdx.x % 32;
  uint4 b[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) b[i] = slot[i][threadIdx.x];
#pragma unroll
  for (int step = 0; step < kPieceSteps; ++step) {
    if (step > 0 && is_narrow) break;
#pragma unroll
    for (int tile = 0; tile < kPartTiles; ++tile) {
      if (tile >= num_tiles) break;
      const uint4 h = s.h[parity][step][tile][lane];
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

/// One piece of a unit that was fetched; with the last one y is written.
template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
__device__ void run_expand(const LoraParams& p, LoraShared& s, const ExpandUnit& u,
                           const LoraWeight& weight, int first_rank, LoraSlot& slot, int parity,
                           ExpandSums& sum) {
  make_h<T, kOp, kForm, kPlain>(p, s, u, weight.rank, first_rank, slot, parity);
  const int num_tiles = (u.part.num_rows + kTileRows - 1) / kTileRows;
  multiply<T>(s, slot, weight.rank <= kLoraRankTile, num_tiles, parity, sum);
  if (first_rank + kRankPiece < weight.rank) return;
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile) {
    if (tile >= num_tiles) break;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int i = tile * kTileRows + static_cast<int>(threadIdx.x % 4 * 2) + j;
      uint4 old;
      if (kPlain && tile == 0) {
        const uint4 both = slot[4][threadIdx.x];
        old = j == 0 ? uint4{both.x, both.y, 0, 0} : uint4{both.z, both.w, 0, 0};
      } else {
        old = load_old<T, kPlain>(p, u, i);
      }
      const float four[4] = {sum[tile][0][j], sum[tile][0][2 + j], sum[tile][1][j],
                             sum[tile][1][2 + j]};
      write_outputs<T, kPlain>(p, u, i, four, p.scale * weight.scale, old);
      sum[tile][0][j] = sum[tile][0][2 + j] = sum[tile][1][j] = sum[tile][1][2 + j] = 0.0f;
    }
  }
}

/// Of shrink alone: sums the parts and writes y.
template <class T, LoraForm kForm, bool kPlain>
__device__ void run_sum(const LoraParams& p, LoraShared& s, const ExpandUnit& u, int rank,
                        LoraSlot& slot) {
  const LoraSliceParams& slice = p.slices[u.slice];
  const auto take = [&](int row_of_part, int rank_of_piece, float h) {
    const int r = u.first + rank_of_piece;
    if (r >= rank) return;
    const int row = u.part.rows[row_of_part];
    const float factor = p.row_scale != nullptr ? p.scale * p.row_scale[row] : p.scale;
    with_type(p.y_dtype, [&](auto type) {
      using Y = decltype(type);
      Y* y = static_cast<Y*>(slice.y) + row * slice.y_stride + r;
      *y = finish(p.accumulate ? *y : Y{}, factor, h, p.accumulate);
    });
  };
  if constexpr (kForm == LoraForm::kFused) {
    // Nothing is written before all is there: with accumulate a value must be added once.
    const auto look = [](int, int, float) {};
    while (!__syncthreads_and(gather_partials<true>(p, s, u, u.first, look))) {
      remake_partials<T, LoraOp::kShrink, kPlain>(p, s, u, u.first, slot);
    }
    gather_partials<true>(p, s, u, u.first, take);
  } else {
    gather_partials<false>(p, s, u, u.first, take);
  }
}

/// Steps through the pieces of a block's units.
struct ExpandCursor {
  int item, piece;

  __device__ void advance(int rank) {
    ++piece;
    if (piece * kRankPiece < rank) return;
    piece = 0;
    item += static_cast<int>(gridDim.x);
  }
};

}  // namespace heddle::cuda
