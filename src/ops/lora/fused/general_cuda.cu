#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/lora/device/general_loads_cuda.h"
#include "ops/lora/fused/fused_cuda.h"

namespace heddle::cuda {
namespace {

// lora_apply in one launch, whatever its addresses, layouts and dtype of y, for one window of rows or several: what lora_direct_cuda.cu does,
// with loads that begin anywhere, h of all ranks in shared memory at once, and the next unit on its way while outputs are written.

constexpr int kMostSteps = kMaxLoraRank / 16;

/// Sums of shrink, and later what expand needs.
struct AnyShared {
  uint32_t flag;  // of this launch
  union {
    alignas(16) LoraTileSums sums[2];
    struct {
      StagedSums staged;
      HVector h[kMostSteps * kHTileVectors];
    };
  };
};

/// The window of a block.
struct AnyWindow {
  const LoraDirectAnyParams& p;
  AnyShared& s;
  const LoraWindowPlan& plan;
  FlaggedWord* words;
  int first_row, num_parts, num_tiles, num_partials;

  __device__ AnyWindow(const LoraDirectAnyParams& p, AnyShared& s, int window)
      : p(p),
        s(s),
        plan(*reinterpret_cast<const LoraWindowPlan*>(reinterpret_cast<const std::byte*>(p.plan) +
                                                      window * p.window_plan_bytes)),
        words(static_cast<FlaggedWord*>(p.partials) + window * p.window_words),
        first_row(window * kLoraWindow) {
    const int4 head = *reinterpret_cast<const int4*>(&plan);
    num_parts = head.x, num_tiles = head.y, num_partials = head.z;
  }
};

/// Of a transposed A the same as load_any_a().
__device__ __noinline__ void load_transposed_a(const uint16_t* data, int64_t stride, int num_ranks,
                                               int num_features, int rank, int feature,
                                               uint4 (&to)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = rank + i / 2 * 8, f = feature + i % 2 * 32;
    to[i] = gather_8(data + f * stride + r, stride, r < num_ranks ? num_features - f : 0);
  }
}

/// Of the ranks g and g + 8, the features 8 q + [0, 8) of each 32 of 64.
__device__ void load_any_a(const AnyWindow& w, const ShrinkUnit& unit, const LoraWeight& a,
                           ShrinkData& to) {
  const int rank = unit.first_rank + lane_g(), left = w.p.in_features - unit.feature;
  const auto* const data = static_cast<const std::byte*>(a.data);
  uint4 v[4] = {};
  if (w.p.is_transposed_a) {
    uint4 other[4];  // has an address, as v must not
    load_transposed_a(static_cast<const uint16_t*>(a.data), a.row_stride,
                      data != nullptr ? a.rank : 0, w.p.in_features, rank, unit.feature, other);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = other[i];
  } else {
    const auto* const end = data + ((a.rank - 1) * a.row_stride + w.p.in_features) * 2;
    const std::byte* from[4];
    int num[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = rank + i / 2 * 8;
      from[i] = data + (r * a.row_stride + unit.feature + i % 2 * 32) * 2;
      num[i] = data != nullptr && r < a.rank ? left - i % 2 * 32 : 0;
    }
    load_anywhere(from, num, end, v);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) to.low[i] = v[i], to.high[i] = v[2 + i];
}

/// x of row `row` of the window, which is row `row_of_part` of the part.
__device__ void load_any_x(const AnyWindow& w, const ShrinkUnit& unit, int row, int row_of_part,
                           ShrinkData& to) {
  const auto* const data = static_cast<const std::byte*>(w.p.u);
  const int64_t stride = w.p.u_stride;
  const auto* const end = data + ((w.p.num_rows - 1) * stride + w.p.in_features) * 2;
  const int left = row_of_part < unit.num_rows ? w.p.in_features - unit.feature : 0;
  const auto* const first = data + ((w.first_row + row) * stride + unit.feature) * 2;
  const std::byte* const from[2] = {first, first + 64};
  const int num[2] = {left, left - 32};
  load_anywhere(from, num, end, to.x);
}

/// A unit of shrink.
__device__ void load_any_shrink(const AnyWindow& w, const ShrinkUnit& unit, const LoraWeight& a,
                                ShrinkData& to) {
  load_any_a(w, unit, a, to);
  load_any_x(w, unit, unit.row, lane_g(), to);
}

template <class T>
__device__ void multiply_any_shrink(const AnyWindow& w, const ShrinkUnit& unit, ShrinkData& data,
                                    LoraTileSums& sums) {
  multiply_tiles<T>(unit, data, sums, [&](int row) {
    load_any_x(w, unit, w.plan.tiles[unit.index].rows[row], row, data);
  });
}

/// 256 outputs of B times all ranks, times the rows of a part. A warp has 32 of the outputs, and writes two rows of all.
struct AnyExpandUnit {
  int part, slot, slice, num_rows, max_rank;
  int first;    // output
  int partial;  // row of partials of the first row
  uint32_t row_reciprocal;
  int rows[2];  // of the batch: `warp` and `warp` + 8 of the part

  AnyExpandUnit() = default;
  __device__ AnyExpandUnit(const AnyWindow& w, int unit) {
    const LoraDirectAnyParams& p = w.p;
    part = divide(unit, p.part_reciprocal[0]);
    const LoraPart& from = w.plan.parts[min(part, kLoraWindow - 1)];
    const int4 head = *reinterpret_cast<const int4*>(&from);
    const int warp = static_cast<int>(threadIdx.x / 32);
    rows[0] = w.first_row + from.rows[warp], rows[1] = w.first_row + from.rows[warp + kTileRows];
    int local = unit - part * p.items_per_part[0];
    slice = 0;
#pragma unroll
    for (int i = 0; i < kLoraMaxSlices - 1; ++i) slice += local >= p.end[0][i];
    if (slice > 0) local -= p.end[0][slice - 1];
    first = local * kBlockOutputs;
    slot = head.x;
    num_rows = head.y & 0xffff;
    max_rank = (head.y >> 16) * kLoraRankTile;
    row_reciprocal = static_cast<uint32_t>(head.w);
    partial = slice * p.num_chunks * w.num_partials + from.first_partial;
  }
};
static_assert(kLoraOutTile == kBlockOutputs && kLoraPartRows == kProductRows);

/// A unit whose data are on their way.
struct AnyExpand {
  AnyExpandUnit unit;
  AnyWeights weights;  // rank 0: nothing to do
  float factors[2];
  Weights<2, kWarpColumns> b;
  OldOutputs old[2];

  /// Finds out, for the unit, what must be known before anything can be asked for.
  __device__ void describe(const LoraDirectAnyParams& p) {
    const LoraWeight a = read_weight(p.a_at, unit.slot, unit.slice);
    const LoraWeight of_b = read_weight(p.b_at, unit.slot, unit.slice);
    int rank = min(min(a.rank, of_b.rank), unit.max_rank);
    if (a.data == nullptr || of_b.data == nullptr) rank = 0;
    const int first = unit.first + static_cast<int>(threadIdx.x / 32) * kGroupOutputs;
    weights = AnyWeights(of_b.data, of_b.row_stride, p.is_transposed_b, rank, first,
                         p.slices[unit.slice].width);
    const float scale = p.scale * of_b.scale;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const bool scales = p.row_scale != nullptr && is_row(j);
      factors[j] = scales ? scale * p.row_scale[unit.rows[j]] : scale;
    }
  }
  /// To the next outputs of the slice, with the same h; false where it has no more.
  __device__ bool advance(const LoraDirectAnyParams& p) {
    if (unit.first + kBlockOutputs >= p.slices[unit.slice].width) return false;
    unit.first += kBlockOutputs;
    weights.b += kBlockOutputs * weights.output_bytes;
    weights.left -= kBlockOutputs;
    return true;
  }
  [[nodiscard]] __device__ bool is_row(int j) const {
    return static_cast<int>(threadIdx.x / 32) + j * kTileRows < unit.num_rows;
  }
  /// Calls f(j, outputs) for the rows that this warp writes.
  template <class F>
  __device__ void for_rows(const LoraDirectAnyParams& p, F&& f) const {
    const LoraDirectSlice& slice = p.slices[unit.slice];
    const int num = min(kBlockOutputs, slice.width - unit.first);
    with_type(p.y_dtype, [&](auto type) {
      using Y = decltype(type);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!is_row(j)) continue;
        const int64_t at = int64_t{unit.rows[j]} * slice.y_stride + unit.first;
        f(j, RowOutputs<Y>(static_cast<Y*>(slice.y) + at, num));
      }
    });
  }
  /// Asks for the first ranks of B, and for what y holds.
  __device__ void load(const LoraDirectAnyParams& p) {
    weights.load(0, b);
    load_old(p);
  }
  __device__ void load_old(const LoraDirectAnyParams& p) {
    for_rows(p, [&](int j, const auto& y) { y.load(old[j]); });
  }
};

/// Two words that lie one behind the other.
struct WordPair {
  FlaggedWord v[2];
};
__device__ inline WordPair peek_pair(const FlaggedWord* words) {
  uint64_t low, high;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(words)
               : "memory");
  const auto word = [](uint64_t bits) {
    return FlaggedWord{__uint_as_float(static_cast<uint32_t>(bits)),
                       static_cast<uint32_t>(bits >> 32)};
  };
  return {{word(low), word(high)}};
}

/// Sums over all chunks, of which kStrands strands are there, of pairs of ranks: pair i is the (at + i * kLoraThreads)-th of `count`,
/// zeros behind them.
template <int kStrands, int kPairs>
__device__ bool sum_pairs(const LoraDirectAnyParams& p, uint32_t flag, const FlaggedWord* words,
                          int at, int count, int chunk_stride, float2 (&h)[kPairs]) {
  float2 sum[kPairs][kStrands];
#pragma unroll
  for (int i = 0; i < kPairs * kStrands; ++i) sum[i / kStrands][i % kStrands] = {kNoSum, kNoSum};
  uint32_t spins = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.num_chunks; chunk += kStrands) {
    WordPair v[kPairs][kStrands];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kPairs * kStrands; ++i) {
        const int pair = i / kStrands, strand = i % kStrands;
        WordPair& to = v[pair][strand];
        to = {{{kNoSum, flag}, {kNoSum, flag}}};
        const int index = at + pair * kLoraThreads;
        if (index < count && chunk + strand < p.num_chunks) {
          to = peek_pair(words + ((chunk + strand) * chunk_stride + 2 * index));
        }
      }
#pragma unroll
      for (int i = 0; i < kPairs * kStrands; ++i) {
        const WordPair& of = v[i / kStrands][i % kStrands];
        ready &= of.v[0].flag == flag && of.v[1].flag == flag;
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kPairs * kStrands; ++i) {
      const WordPair& of = v[i / kStrands][i % kStrands];
      float2& to = sum[i / kStrands][i % kStrands];
      to.x += of.v[0].value, to.y += of.v[1].value;
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
#pragma unroll
    for (int d = 1; d < kStrands; d *= 2) {
#pragma unroll
      for (int j = 0; j < kStrands; j += 2 * d) {
        sum[i][j].x += sum[i][j + d].x, sum[i][j].y += sum[i][j + d].y;
      }
    }
    h[i] = at + i * kLoraThreads < count ? sum[i][0] : float2{0.0f, 0.0f};
  }
  return true;
}

/// h of all ranks of a unit into shared memory, as products take it. False where another block's sums did not come in time. All threads
/// of the block call it.
template <class T, int kStrands, int kPairs>
__device__ bool gather_pairs(const AnyWindow& w, const AnyExpandUnit& unit, int rank) {
  constexpr int kTilePairs = kLoraRankTile / 2;
  const int num_rows = unit.num_rows, tiles = (rank + kLoraRankTile - 1) / kLoraRankTile;
  const int all_tiles = rank <= kLoraRankTile ? 1 : (tiles + 1) / 2 * 2;
  const int count = all_tiles * num_rows * kTilePairs,
            chunk_stride = w.num_partials * kLoraRankTile;
  const FlaggedWord* const words = w.words + int64_t{unit.partial} * kLoraRankTile;
  bool is_there = true;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < count; base += kPairs * kLoraThreads) {
    float2 h[kPairs];
    is_there &= sum_pairs<kStrands, kPairs>(w.p, w.s.flag, words, base,
                                            tiles * num_rows * kTilePairs, chunk_stride, h);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = base + i * kLoraThreads, tile_row = at / kTilePairs;
      if (at >= count) break;
      const int tile = divide(tile_row, unit.row_reciprocal), row = tile_row - tile * num_rows;
      const int r = tile * kLoraRankTile + at % kTilePairs * 2;
      const float x = r < rank ? h[i].x : 0.0f, y = r + 1 < rank ? h[i].y : 0.0f;
      const T hi[2] = {narrow<T>(x), narrow<T>(y)};
      const T lo[2] = {narrow<T>(x - widen(hi[0])), narrow<T>(y - widen(hi[1]))};
      const int step = rank <= 16 ? 0 : r / 32 * 2 + r % 8 / 4;
      const int q = rank <= 16 ? r / 4 : r % 32 / 8;
      HVector* const to = w.s.h + step * kHTileVectors + row % kTileRows * 4 + q;
      const int word = r % 4 / 2 * 2 + row / kTileRows;
      reinterpret_cast<uint32_t*>(to)[word] = pack(hi[0], hi[1]);
      reinterpret_cast<uint32_t*>(to + 32)[word] = pack(lo[0], lo[1]);
    }
  }
  return __syncthreads_and(is_there);
}

template <class T>
__device__ bool gather_any_h(const AnyWindow& w, const AnyExpandUnit& unit, int rank) {
  __syncthreads();  // what lies there is no longer read
  if (w.p.num_chunks <= 2) return gather_pairs<T, 2, 2>(w, unit, rank);
  return gather_pairs<T, kLoraStrands, 1>(w, unit, rank);
}

/// The sums of a unit whose h is in shared memory, for all warps to write. All threads of the block call it.
template <class T>
__device__ void multiply_unit(AnyShared& s, AnyExpand& expand) {
  const int steps = num_steps(expand.weights.rank);
  const HVector* const h = s.h + threadIdx.x % 32;
  Sums<kWarpColumns> sum = {};
#pragma unroll 1
  for (int step = 0; step < steps; step += 2) {
    const Weights<2, kWarpColumns> b = expand.b;
    if (step + 2 < steps) expand.weights.load(step * 16 + 32, expand.b);
    multiply<T>(HPair(h + step * kHTileVectors), b, 0, sum);
    if (step + 1 < steps) multiply<T>(HPair(h + (step + 1) * kHTileVectors), b, 1, sum);
  }
  __syncthreads();  // the rows before were read
  stage(sum, s.staged);
  __syncthreads();
}

__device__ void write_unit(const AnyWindow& w, const AnyExpand& expand) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  expand.for_rows(w.p, [&](int j, const auto& y) {
    y.store(expand.old[j], expand.factors[j], true, w.s.staged[warp + j * kTileRows]);
  });
}

/// Makes the partial sums of a part that other blocks have not made yet: the same bits. All threads of the block call it.
/// Arguments are numbers alone: what a function takes by address would not stay in registers.
template <class T>
__device__ __noinline__ void remake_any_sums(const LoraDirectAnyParams& p, AnyShared& s, int part,
                                             int slice, int rank) {
  const AnyWindow w(p, s, static_cast<int>(blockIdx.y));
  const int first_tile = w.plan.parts[part].first_tile;
  const int num_tiles = (rank + kLoraRankTile - 1) / kLoraRankTile;
#pragma unroll 1
  for (int i = 0; i < num_tiles * p.num_chunks; ++i) {
    const int tile = divide(i, p.chunk_reciprocal), chunk = i - tile * p.num_chunks;
    const ShrinkUnit shrink(p, w.plan, w.num_partials,
                            ((first_tile + tile) * p.num_slices + slice) * p.num_chunks + chunk);
    ShrinkData data;
    load_any_shrink(w, shrink, read_weight(p.a_at, shrink.slot, shrink.slice), data);
    __syncthreads();
    multiply_any_shrink<T>(w, shrink, data, s.sums[0]);
    __syncthreads();
    publish_sums(w.words, s.flag, shrink.partial, shrink.num_rows, s.sums[0]);
  }
}

// Units of shrink, then units of expand, of the window blockIdx.y. kIsSingle: no block has more than one of either, so that all are asked for
// together with their numbers, and what the next would need is left out. Grid: blocks that run at once, shared out over the windows.
template <class T, bool kIsSingle>
__global__ void __launch_bounds__(kLoraThreads, kLoraDirectBlocks)
    lora_direct_any_kernel(const __grid_constant__ LoraDirectAnyParams p) {
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<AnyShared*>(memory);
  const bool is_counter = threadIdx.x == kLoraThreads - 1;
  uint64_t before = 0;
  if (is_counter) before = arrive(p.arrivals);
  const AnyWindow w(p, s, static_cast<int>(blockIdx.y));
  const int num_shrinks = w.num_tiles * p.num_slices * p.num_chunks;
  const int num_expands = w.num_parts * p.items_per_part[0];
  Share shrinks(static_cast<int>(blockIdx.x)), expands = shrinks;
  if (!kIsSingle) {
    shrinks = Share(num_shrinks, p.block_reciprocal);
    expands = Share(num_expands, p.block_reciprocal);
  }
  ShrinkUnit shrink(p, w.plan, w.num_partials, shrinks.begin);
  AnyExpand expand;
  expand.unit = AnyExpandUnit(w, expands.begin);
  expand.weights.rank = 0;
  shrinks.end = min(shrinks.end, num_shrinks), expands.end = min(expands.end, num_expands);
  const bool has_shrink = shrinks.begin < shrinks.end;
  LoraWeight a;
  ShrinkData x;
  if (has_shrink) a = read_weight(p.a_at, shrink.slot, shrink.slice);
  if (expands.begin < expands.end) expand.describe(p);
  if (has_shrink) load_any_shrink(w, shrink, a, x);
  if (is_counter) s.flag = flag_of(before, p.arrivals);
#pragma unroll 1
  for (int turn = 0;; turn ^= 1) {
    const ShrinkUnit unit = shrink;
    const bool has_next = !kIsSingle && ++shrinks.begin < shrinks.end;
    const bool is_same = unit.chunk + 1 < p.num_chunks;
    if (has_next && is_same) shrink.advance(w.num_partials);
    if (has_next && !is_same) shrink = ShrinkUnit(p, w.plan, w.num_partials, shrinks.begin);
    if (has_shrink) multiply_any_shrink<T>(w, unit, x, s.sums[turn]);
    if (has_next && !is_same) a = read_weight(p.a_at, shrink.slot, shrink.slice);
    if (has_next) load_any_shrink(w, shrink, a, x);
    if (!has_next && expand.weights.rank > 0) expand.load(p);
    if (has_shrink) {
      __syncthreads();
      publish_sums(w.words, s.flag, unit.partial, unit.num_rows, s.sums[turn]);
    }
    if (!has_next) break;
  }
  bool is_held = false;
#pragma unroll 1
  while (expands.begin < expands.end) {
    const int rank = expand.weights.rank;
    if (rank > 0) {
      while (!is_held && !gather_any_h<T>(w, expand.unit, rank)) {
        remake_any_sums<T>(p, s, expand.unit.part, expand.unit.slice, rank);
      }
      multiply_unit<T>(s, expand);
    }
    const bool has_next = !kIsSingle && ++expands.begin < expands.end;
    AnyExpand next;
    is_held = false;
    if (has_next) {
      next.unit = expand.unit, next.weights = expand.weights;
      next.factors[0] = expand.factors[0], next.factors[1] = expand.factors[1];
      const bool is_same = next.advance(p);
      is_held = is_same && rank > 0;
      if (!is_same) {
        next.unit = AnyExpandUnit(w, expands.begin);
        next.describe(p);
      }
    }
    if (has_next && next.weights.rank > 0) next.weights.load(0, next.b);
    if (rank > 0) write_unit(w, expand);
    if (!has_next) return;
    expand.unit = next.unit, expand.weights = next.weights, expand.b = next.b;
    expand.factors[0] = next.factors[0], expand.factors[1] = next.factors[1];
    if (expand.weights.rank > 0) expand.load_old(p);
  }
}

template <class T, bool kIsSingle>
void run(const LoraDirectAnyParams& p, int num_blocks, int num_windows, int device,
         cudaStream_t stream) {
  constexpr auto kKernel = lora_direct_any_kernel<T, kIsSingle>;
  constexpr int kBytes = sizeof(AnyShared);
  allow_shared_memory<kKernel, kBytes>(device);
  const dim3 grid(static_cast<unsigned>(num_blocks), static_cast<unsigned>(num_windows));
  kKernel<<<grid, kLoraThreads, kBytes, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void run_typed(const LoraDirectAnyParams& p, int num_blocks, int num_windows, int device,
               cudaStream_t stream) {
  if (p.is_single) return run<T, true>(p, num_blocks, num_windows, device, stream);
  run<T, false>(p, num_blocks, num_windows, device, stream);
}

}  // namespace

template <>
void launch_lora_direct_any<bfloat16>(const LoraDirectAnyParams& p, int num_blocks, int num_windows,
                                      int device, cudaStream_t stream) {
  run_typed<__nv_bfloat16>(p, num_blocks, num_windows, device, stream);
}
template <>
void launch_lora_direct_any<half>(const LoraDirectAnyParams& p, int num_blocks, int num_windows,
                                  int device, cudaStream_t stream) {
  run_typed<__half>(p, num_blocks, num_windows, device, stream);
}

}  // namespace heddle::cuda
