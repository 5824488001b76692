#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora/lora_shrink_cuda.h"

namespace heddle::cuda {

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
      describe_shrink<T>(p, index, shrink);
    }
    __syncthreads();
    fetch_shrink<T, kPlain>(p, shrink, slot);
    commit_copies();
    wait_for_copies<0>();
    __syncwarp();
    run_shrink<T, true, kPlain>(p, s, shrink, slot);
  }
}

/// Puts h[row][rank] as hi + lo where lane (g, q) of the products finds it.
template <class T>
__device__ void store_h(LoraShared& s, bool is_narrow, int row, int rank, float h) {
  const int piece = rank / kHPiece;
  rank %= kHPiece;
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
  const int to = is_narrow ? 16 : (num + kHPiece - 1) / kHPiece * kHPiece;
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

}  // namespace heddle::cuda
