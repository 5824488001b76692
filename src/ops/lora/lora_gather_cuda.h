#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora/lora_shrink_cuda.h"

namespace heddle::cuda {

constexpr uint64_t kArrivalBlocks = 1u << 16;

/// Counts a block that begins. What the counter held says which launch this is.
__device__ inline uint64_t arrive(uint64_t* arrivals) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), 1ull);
}

/// The flag of the launch whose arrivals were `before`; the last of its blocks counts the launch. Never 0, with which
/// memory begins; 2^32 - 1 launches later it comes again.
__device__ inline uint32_t flag_of(uint64_t before, uint64_t* arrivals) {
  if (before % kArrivalBlocks == gridDim.x - 1) {
    atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), kArrivalBlocks - gridDim.x);
  }
  // The launch modulo 2^32 - 1, which is the sum of its halves with the carry added, plus 1.
  const uint64_t launch = before / kArrivalBlocks;
  const auto low = static_cast<uint32_t>(launch);
  uint32_t sum = low + static_cast<uint32_t>(launch >> 32);
  sum += sum < low;
  return sum == 0xffffffffu ? 1 : sum + 1;
}

constexpr float kNoSum = -0.0f;  // v + kNoSum is v, whatever v is

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
  for (int i = 0; i < kValues; ++i) sum[i] = kNoSum;
#pragma unroll 1
  for (int chunk = strand; chunk < p.num_chunks; chunk += kLoraStrands) {
    float v[kValues];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const Word* word = words + (i < num ? i * kStep * kLoraRankTile : 0);
        if constexpr (kFlagged) {
          const FlaggedWord w = peek(word);
          v[i] = w.value;
          ready &= w.flag == flag;
        } else {
          v[i] = *word;
        }
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] += v[i];
    words += kLoraStrands * chunk_stride;
  }
  return true;
}

/// Sums kNum strands from that of *word on, asking for kDeep words of each until all are there; `left` chunks follow it.
template <int kNum, int kDeep>
__device__ bool sum_strands(const LoraParams& p, uint32_t flag, const FlaggedWord* word,
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
__device__ inline bool sum_chunks(const LoraParams& p, uint32_t flag, const FlaggedWord* word,
                                  int chunk_stride, float& h) {
  float sum[kLoraStrands];
  if (!sum_strands<kLoraStrands, 1>(p, flag, word, chunk_stride, p.num_chunks, sum)) return false;
  h = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  return true;
}

/// The same by four lanes, which all get it; whole warps call it.
__device__ inline bool sum_chunks_by_four(const LoraParams& p, uint32_t flag,
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

/// Calls take(row, rank - first_rank, value) with h of a part's rows for `num_ranks` ranks (to the next multiple of 16) from
/// first_rank on, on one lane each. False where another block's sums did not come in time.
template <bool kFlagged, class Take>
__device__ bool gather_partials(const LoraParams& p, uint32_t flag, const PartialRows& partials,
                                int first_rank, int num_ranks, Take&& take) {
  constexpr int kValues = 4, kStep = kLoraThreads / (kLoraRankTile * kLoraStrands);
  const int strand = threadIdx.x % kLoraStrands;
  const int rank = threadIdx.x / kLoraStrands % kLoraRankTile;
  const int rows = partials.num_rows;
  const int count = (num_ranks + kLoraRankTile - 1) / kLoraRankTile * rows;
  const int first = partials.first + first_rank / kLoraRankTile * rows;
  bool is_there = true;
#pragma unroll 1
  for (int begin = threadIdx.x / (kLoraRankTile * kLoraStrands); begin < count;
       begin += kValues * kStep) {
    float sum[kValues];
    const int num = (count - begin + kStep - 1) / kStep;
    is_there &= sum_strand<kFlagged, kValues, kStep>(
        p, flag, (int64_t{first} + begin) * kLoraRankTile + rank, num, sum);
    __syncwarp();
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
  return is_there;
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

/// h of the ranks [first_rank, first_rank + 128) into shared memory; all threads of the block call it. False where the
/// partial sums had to be made: then the slot holds them.
template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
__device__ bool make_h(const LoraParams& p, LoraShared& s, const LoraItem& item, int first_rank,
                       LoraSlot& slot) {
  const bool is_narrow = item.rank <= kLoraRankTile;
  const int num = min(kBlockRanks, item.rank - first_rank);
  __syncthreads();
  clear_h(s.h, is_narrow, num);
  const auto take = [&](int row, int r, float value) {
    store_h<T>(s.h, is_narrow, row, r, r < num ? value : 0.0f);
  };
  const PartialRows partials{item.partial, item.num_rows, item.row_reciprocal};
  bool is_there = true;
  if constexpr (kOp == LoraOp::kExpand) {
    gather_rows(p, item, first_rank, num, take);
    __syncthreads();
  } else if constexpr (kForm == LoraForm::kFused) {
    while (!__syncthreads_and(gather_partials<true>(p, s.flag, partials, first_rank, num, take))) {
      remake_partials<T, kPlain>(p, s, item, first_rank / kLoraRankTile, num, slot);
      is_there = false;
    }
  } else {
    gather_partials<false>(p, s.flag, partials, first_rank, num, take);
    __syncthreads();
  }
  return is_there;
}

}  // namespace heddle::cuda
