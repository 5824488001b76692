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

/// First output of this lane in a half, which has four; those of the warp are 32.
__device__ inline int output_of_lane(int half) {
  return half * kLoraOutTile + static_cast<int>(threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4 * 4);
}

/// What the rows 2 q and 2 q + 1 hold at this lane's outputs of a half; plain outputs alone.
template <class T>
__device__ void fetch_old(const LoraParams& p, const LoraItem& item, int half, uint4* to) {
  const LoraSliceParams& slice = p.slices[item.slice];
  const LoraOperand<T, true> y(static_cast<const T*>(slice.y) + item.first, slice.y_stride, false);
  const int n = output_of_lane(half), q = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool is_there = p.accumulate && 2 * q + j < item.num_rows && n < item.left;
    copy_async_8(reinterpret_cast<uint2*>(to) + j,
                 is_there ? y.at(item.rows[2 * q + j], n) : y.data, is_there);
  }
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

template <class Y>
struct alignas(4 * sizeof(Y)) FourOf {
  Y v[4];
};

/// What row i of the part holds at this lane's four outputs; kPlain: of type T.
template <class T, bool kPlain>
__device__ uint4 load_old(const LoraParams& p, const LoraItem& item, int half, int i) {
  const LoraSliceParams& slice = p.slices[item.slice];
  const int n = output_of_lane(half), left = item.left - n;
  uint4 raw{0, 0, 0, 0};
  if (!p.accumulate || i >= item.num_rows || left <= 0) return raw;
  with_type_or<kPlain, T>(p.y_dtype, [&](auto type) {
    using Y = decltype(type);
    const Y* y =
        LoraOperand<Y, kPlain>(static_cast<const Y*>(slice.y) + item.first, slice.y_stride, false)
            .at(item.rows[i], n);
    FourOf<Y> four{};
    if (kPlain || (left >= 4 && reinterpret_cast<uintptr_t>(y) % sizeof(four) == 0)) {
      four = *reinterpret_cast<const FourOf<Y>*>(y);
    } else {
      for (int k = 0; k < 4; ++k) {
        if (k < left) four.v[k] = y[k];
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
__device__ void write_four(const LoraParams& p, const LoraItem& item, int half, int i,
                           const float (&sum)[4], const uint4& old) {
  const LoraSliceParams& slice = p.slices[item.slice];
  const int n = output_of_lane(half), left = item.left - n;
  if (i >= item.num_rows || left <= 0) return;
  const int row = item.rows[i];
  const float factor = p.row_scale != nullptr ? item.scale * p.row_scale[row] : item.scale;
  with_type_or<kPlain, T>(p.y_dtype, [&](auto type) {
    using Y = decltype(type);
    Y* y = const_cast<Y*>(
        LoraOperand<Y, kPlain>(static_cast<const Y*>(slice.y) + item.first, slice.y_stride, false)
            .at(row, n));
    FourOf<Y> four = *reinterpret_cast<const FourOf<Y>*>(&old);
#pragma unroll
    for (int k = 0; k < 4; ++k) four.v[k] = finish(four.v[k], factor, sum[k], p.accumulate);
    if (kPlain || (left >= 4 && reinterpret_cast<uintptr_t>(y) % sizeof(four) == 0)) {
      *reinterpret_cast<FourOf<Y>*>(y) = four;
    } else {
      for (int k = 0; k < 4; ++k) {
        if (k < left) y[k] = four.v[k];
      }
    }
  });
}

/// Sums the strand of this lane for kValues rows of partials kStep apart, of which `num` are wanted, asking for all words
/// again until all are there.
template <bool kFlagged, int kValues, int kStep>
__device__ bool sum_strand(const LoraParams& p, uint32_t flag, int64_t first, int num,
                           float (&sum)[kValues]) {
  using Word = std::conditional_t<kFlagged, FlaggedWord, float>;
  const int strand = threadIdx.x % kLoraStrands;
  const int64_t chunk_stride = int64_t{p.plan->num_partials} * kLoraRankTile;
  const Word* words = static_cast<const Word*>(p.partials) + first + strand * chunk_stride;
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
        if (i >= num) continue;
        if constexpr (kFlagged) {
          const FlaggedWord w = peek(words + i * kStep * kLoraRankTile);
          v[i] = w.value;
          ready &= w.flag == flag;
        } else {
          v[i] = words[i * kStep * kLoraRankTile];
        }
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] = chunk == strand ? v[i] : sum[i] + v[i];
    words += kLoraStrands * chunk_stride;
  }
  return true;
}

/// Calls take(row, rank - first_rank, value) with h of the item's rows for `num_ranks` ranks (to the next multiple of 16) from
/// first_rank on, on one lane each. False where another block's sums did not come in time.
template <bool kFlagged, class Take>
__device__ bool gather_partials(const LoraParams& p, const LoraShared& s, const LoraItem& item,
                                int first_rank, int num_ranks, Take&& take) {
  constexpr int kValues = 4, kStep = kLoraThreads / (kLoraRankTile * kLoraStrands);
  const int strand = threadIdx.x % kLoraStrands;
  const int rank = threadIdx.x / kLoraStrands % kLoraRankTile;
  const int rows = item.num_rows;
  const int count = (num_ranks + kLoraRankTile - 1) / kLoraRankTile * rows;
  const int first = item.partial + first_rank / kLoraRankTile * rows;
  bool is_there = true;
#pragma unroll 1
  for (int begin = threadIdx.x / (kLoraRankTile * kLoraStrands); begin < count;
       begin += kValues * kStep) {
    float sum[kValues];
    const int num = (count - begin + kStep - 1) / kStep;
    is_there &= sum_strand<kFlagged, kValues, kStep>(
        p, s.flag, (int64_t{first} + begin) * kLoraRankTile + rank, num, sum);
    __syncwarp();
    float mine = 0.0f;  // lane i of the strands has the i-th value
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
#pragma unroll
      for (int d = 1; d < kLoraStrands; d *= 2) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], d);
      if (strand == i) mine = sum[i];
    }
    if (strand < min(num, kValues)) {
      const int at = begin + strand * kStep, tile = divide(at, item.row_reciprocal);
      take(at - tile * rows, tile * kLoraRankTile + rank, mine);
    }
  }
  return is_there;
}

/// The same from a tensor h.
template <class Take>
__device__ void gather_rows(const LoraParams& p, const LoraItem& item, int first_rank,
                            int num_ranks, Take&& take) {
  with_type(p.u_dtype, [&](auto type) {
    using U = decltype(type);
    for (int i = threadIdx.x; i < kBlockRanks * item.num_rows; i += kLoraThreads) {
      const int row = i / kBlockRanks, r = i % kBlockRanks;
      if (r >= num_ranks) continue;
      const U* from = static_cast<const U*>(p.u) + item.rows[row] * p.u_stride;
      take(row, r, widen(from[first_rank + r]));
    }
  });
}

/// Makes the partial sums of 128 ranks that other blocks have not made yet: the same bits. Takes the slot for it.
template <class T, bool kPlain>
__device__ __noinline__ void remake_partials(const LoraParams& p, LoraShared& s,
                                             const LoraItem& item, int first_tile, int num_ranks,
                                             LoraSlot& slot) {
  const int tiles = (num_ranks + kLoraRankTile - 1) / kLoraRankTile;
  first_tile += p.plan->parts[item.part].first_tile;
  wait_for_copies<0>();
#pragma unroll 1
  for (int i = 0; i < tiles * p.num_chunks; ++i) {
    const int tile = i / p.num_chunks, chunk = i - tile * p.num_chunks;
    LoraItem& shrink = s.remade;
    if (threadIdx.x == 0) {
      const int index = ((first_tile + tile) * p.num_slices + item.slice) * p.num_chunks + chunk;
      describe_shrink<T, kPlain>(p, index, shrink);
    }
    __syncthreads();
    fetch_shrink<T, kPlain>(p, shrink, slot);
    commit_copies();
    wait_for_copies<0>();
    run_shrink<T, true, kPlain>(p, s, shrink, slot);
  }
}

/// Puts h[row][rank] as hi + lo where lane (g, q) of the products finds it.
template <class T>
__device__ void store_h(LoraShared& s, bool is_narrow, int row, int rank, float h) {
  const int piece = rank / kRankPiece;
  rank %= kRankPiece;
  const int q = is_narrow ? rank / 4 : rank / 8;
  const int step = is_narrow ? 0 : rank % 8 / 4;
  const T hi = narrow<T>(h);
  const T lo = narrow<T>(h - widen(hi));
  T* to = reinterpret_cast<T*>(&s.h[piece][step][row / kTileRows][row % kTileRows * 4 + q]);
  to[rank % 4] = hi;
  to[4 + rank % 4] = lo;
}

/// h of the ranks [first_rank, first_rank + 128) into shared memory; all threads of the block call it. False where the
/// partial sums had to be made: then the slot holds them.
template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
__device__ bool make_h(const LoraParams& p, LoraShared& s, const LoraItem& item, int first_rank,
                       LoraSlot& slot) {
  const bool is_narrow = item.rank <= kLoraRankTile;
  const int num = min(kBlockRanks, item.rank - first_rank);
  // Ranks that the products take, but the adapter does not have.
  const int to = is_narrow ? 16 : (num + kRankPiece - 1) / kRankPiece * kRankPiece;
  __syncthreads();
  for (int i = threadIdx.x; i < kLoraPartRows * (to - num); i += kLoraThreads) {
    store_h<T>(s, is_narrow, i % kLoraPartRows, num + i / kLoraPartRows, 0.0f);
  }
  const auto take = [&](int row, int r, float value) {
    if (r < num) store_h<T>(s, is_narrow, row, r, value);
  };
  bool is_there = true;
  if constexpr (kOp == LoraOp::kExpand) {
    gather_rows(p, item, first_rank, num, take);
    __syncthreads();
  } else if constexpr (kForm == LoraForm::kFused) {
    while (!__syncthreads_and(gather_partials<true>(p, s, item, first_rank, num, take))) {
      remake_partials<T, kPlain>(p, s, item, first_rank / kLoraRankTile, num, slot);
      is_there = false;
    }
  } else {
    gather_partials<false>(p, s, item, first_rank, num, take);
    __syncthreads();
  }
  return is_there;
}

using ExpandSums = float[kPartTiles][2][4];

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

/// Adds the sums of a half to y and clears them; `both` has what the first rows hold, where outputs are plain.
template <class T, bool kPlain>
__device__ void write_half(const LoraParams& p, const LoraItem& item, int half, int num_tiles,
                           const uint4& both, ExpandSums& sum) {
#pragma unroll
  for (int tile = 0; tile < kPartTiles; ++tile) {
    if (tile >= num_tiles) break;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int i = tile * kTileRows + static_cast<int>(threadIdx.x % 4 * 2) + j;
      uint4 old;
      if (kPlain && tile == 0) {
        old = j == 0 ? uint4{both.x, both.y, 0, 0} : uint4{both.z, both.w, 0, 0};
      } else {
        old = load_old<T, kPlain>(p, item, half, i);
      }
      const float four[4] = {sum[tile][0][j], sum[tile][0][2 + j], sum[tile][1][j],
                             sum[tile][1][2 + j]};
      write_four<T, kPlain>(p, item, half, i, four, old);
      sum[tile][0][j] = sum[tile][0][2 + j] = sum[tile][1][j] = sum[tile][1][2 + j] = 0.0f;
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
