#pragma once

#include "core/math.h"
#include "ops/lora/halves/item_cuda.h"

namespace heddle::cuda::lora {

// h of the expand half: the sums of what the shrink half wrote, or a tensor in lora_expand.

/// The partial sums of a row tile and slice for a chunk: the rows of its first 16 ranks, then of
/// the next 16.
struct PartialRows {
  int first, num_rows;
  Reciprocal row_reciprocal;
};

/// Sums the chain of this lane (its number modulo 8) for kValues rows of partial sums that lie
/// kStep apart. `num` of them are wanted.
template <int kValues, int kStep>
__device__ void sum_chain(const HalfParams& p, int64_t first, int num, float (&sum)[kValues]) {
  const int chain = threadIdx.x % kChains;
  const int64_t chunk_stride = int64_t{num_partials(p)} * kTileRanks;
  const float* from = p.partials + first + chain * chunk_stride;
#pragma unroll
  for (int i = 0; i < kValues; ++i) sum[i] = kNoSum;
#pragma unroll 1
  for (int chunk = chain; chunk < p.num_chunks; chunk += kChains) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] += from[i < num ? i * kStep * kTileRanks : 0];
    from += kChains * chunk_stride;
  }
}

/// Calls take(row, rank - first_rank, h) for the rows of a row tile and num_ranks ranks from
/// first_rank on, rounded up to a multiple of 16. Eight lanes sum the eight chains of a value, one
/// of them calls take.
template <class Take>
__device__ void gather_partials(const HalfParams& p, const PartialRows& partials, int first_rank,
                                int num_ranks, Take&& take) {
  constexpr int kValues = 4, kStep = kBlockThreads / (kTileRanks * kChains);
  const int chain = threadIdx.x % kChains;
  const int rank = threadIdx.x / kChains % kTileRanks;
  const int rows = partials.num_rows;
  const int count = ceil_div(num_ranks, kTileRanks) * rows;
  const int first = partials.first + first_rank / kTileRanks * rows;
#pragma unroll 1
  for (int begin = threadIdx.x / (kTileRanks * kChains); begin < count; begin += kValues * kStep) {
    float sum[kValues];
    const int num = ceil_div(count - begin, kStep);
    sum_chain<kValues, kStep>(p, (int64_t{first} + begin) * kTileRanks + rank, num, sum);
    float mine = 0.0f;  // the lane of chain i takes value i
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
#pragma unroll
      for (int d = 1; d < kChains; d *= 2) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], d);
      if (chain == i) mine = sum[i];
    }
    if (chain < min(num, kValues)) {
      const int at = begin + chain * kStep, tile = divide(at, partials.row_reciprocal);
      take(at - tile * rows, tile * kTileRanks + rank, mine);
    }
  }
}

/// gather_partials() where h is a tensor, with zeros up to the next multiple of 16 ranks.
template <class Take>
__device__ void gather_rows(const HalfParams& p, const WorkItem& item, int first_rank,
                            int num_ranks, Take&& take) {
  with_type(p.input_dtype, [&](auto type) {
    using U = decltype(type);
    for (int i = threadIdx.x; i < kBlockRanks * item.num_rows; i += kBlockThreads) {
      const int row = i / kBlockRanks, r = i % kBlockRanks;
      if (r / kTileRanks * kTileRanks >= num_ranks) continue;
      const U* from = static_cast<const U*>(p.input) + item.rows[row] * p.input_stride;
      take(row, r, r < num_ranks ? widen(from[first_rank + r]) : 0.0f);
    }
  });
}

/// Puts h of the ranks [first_rank, first_rank + 128) into shared memory. All threads call it.
template <class T>
__device__ void make_h(const HalfParams& p, HalfShared& s, const WorkItem& item, int first_rank) {
  const bool is_narrow = item.rank <= kTileRanks;
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

}  // namespace heddle::cuda::lora
