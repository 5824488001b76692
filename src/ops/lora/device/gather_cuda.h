#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora/device/shrink_cuda.h"

namespace heddle::cuda {

/// Sums the strand of this lane for kValues rows of partials kStep apart, of which `num` are wanted.
template <int kValues, int kStep>
__device__ void sum_strand(const LoraParams& p, int64_t first, int num, float (&sum)[kValues]) {
  const int strand = threadIdx.x % kLoraStrands;
  const int64_t chunk_stride = int64_t{p.plan->num_partials} * kLoraRankTile;
  const float* from = p.partials + first + strand * chunk_stride;
#pragma unroll
  for (int i = 0; i < kValues; ++i) sum[i] = kNoSum;
#pragma unroll 1
  for (int chunk = strand; chunk < p.num_chunks; chunk += kLoraStrands) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] += from[i < num ? i * kStep * kLoraRankTile : 0];
    from += kLoraStrands * chunk_stride;
  }
}

/// Calls take(row, rank - first_rank, value) with h of a part's rows for `num_ranks` ranks (to the next multiple of 16) from
/// first_rank on, on one lane each.
template <class Take>
__device__ void gather_partials(const LoraParams& p, const PartialRows& partials, int first_rank,
                                int num_ranks, Take&& take) {
  constexpr int kValues = 4, kStep = kLoraThreads / (kLoraRankTile * kLoraStrands);
  const int strand = threadIdx.x % kLoraStrands;
  const int rank = threadIdx.x / kLoraStrands % kLoraRankTile;
  const int rows = partials.num_rows;
  const int count = (num_ranks + kLoraRankTile - 1) / kLoraRankTile * rows;
  const int first = partials.first + first_rank / kLoraRankTile * rows;
#pragma unroll 1
  for (int begin = threadIdx.x / (kLoraRankTile * kLoraStrands); begin < count;
       begin += kValues * kStep) {
    float sum[kValues];
    const int num = (count - begin + kStep - 1) / kStep;
    sum_strand<kValues, kStep>(p, (int64_t{first} + begin) * kLoraRankTile + rank, num, sum);
    float mine = 0.0f;  // lane i of the strands has the i-th value
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
#pragma unroll
      for (int d = 1; d < kLoraStrands; d *= 2) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], d);
      if (strand == i) mine = sum[i];
    }
    if (strand < min(num, kValues)) {
      const int at = begin + strand * kStep, tile = divide(at, partials.row_reciprocal);
      take(at - tile * rows, tile * kLoraRankTile + rank, mine);
    }
  }
}

/// The same from a tensor h; zeros up to the next multiple of 16 ranks.
template <class Take>
__device__ void gather_rows(const LoraParams& p, const LoraItem& item, int first_rank,
                            int num_ranks, Take&& take) {
  with_type(p.u_dtype, [&](auto type) {
    using U = decltype(type);
    for (int i = threadIdx.x; i < kBlockRanks * item.num_rows; i += kLoraThreads) {
      const int row = i / kBlockRanks, r = i % kBlockRanks;
      if (r / kLoraRankTile * kLoraRankTile >= num_ranks) continue;
      const U* from = static_cast<const U*>(p.u) + item.rows[row] * p.u_stride;
      take(row, r, r < num_ranks ? widen(from[first_rank + r]) : 0.0f);
    }
  });
}

/// Puts h[row][rank] as hi + lo where lane (g, q) of the products finds it.
template <class T>
__device__ void store_h(LoraPieceOfH* pieces, bool is_narrow, int row, int rank, float h) {
  const int piece = rank / kHPiece;
  rank %= kHPiece;
  const int q = is_narrow ? rank / 4 : rank / 8;
  const int step = is_narrow ? 0 : rank % 8 / 4;
  const T hi = narrow<T>(h);
  const T lo = narrow<T>(h - widen(hi));
  T* to = reinterpret_cast<T*>(&pieces[piece][step][row / kTileRows][row % kTileRows * 4 + q]);
  to[rank % 4] = hi;
  to[4 + rank % 4] = lo;
}

/// Zeros for the last 16 ranks of a piece that the products take, but the adapter does not have.
__device__ inline void clear_h(LoraPieceOfH* pieces, bool is_narrow, int num) {
  static_assert(kHPiece == 2 * kLoraRankTile);
  const int tiles = (num + kLoraRankTile - 1) / kLoraRankTile, t = static_cast<int>(threadIdx.x);
  if (is_narrow || tiles % 2 == 0 || t >= kHSteps * kLoraPartRows * 2) return;
  const int step = t % kHSteps, row = t / kHSteps % kLoraPartRows,
            q = 2 + t / (kHSteps * kLoraPartRows);
  pieces[tiles / 2][step][row / kTileRows][row % kTileRows * 4 + q] = {0, 0, 0, 0};
}

/// h of the ranks [first_rank, first_rank + 128) into shared memory; all threads of the block call it.
template <class T>
__device__ void make_h(const LoraParams& p, LoraShared& s, const LoraItem& item, int first_rank) {
  const bool is_narrow = item.rank <= kLoraRankTile;
  const int num = min(kBlockRanks, item.rank - first_rank);
  __syncthreads();
  clear_h(s.h, is_narrow, num);
  const auto take = [&](int row, int r, float value) {
    store_h<T>(s.h, is_narrow, row, r, r < num ? value : 0.0f);
  };
  if (p.partials == nullptr) {
    gather_rows(p, item, first_rank, num, take);
  } else {
    const PartialRows partials{item.partial, item.num_rows, item.row_reciprocal};
    gather_partials(p, partials, first_rank, num, take);
  }
  __syncthreads();
}

}  // namespace heddle::cuda
