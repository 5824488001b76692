#pragma once

#include "core/math.h"
#include "ops/lora/fused/fused_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"
#include "ops/lora_device/general_loads_cuda.h"

namespace heddle::cuda::lora {

// The pieces of the fused kernel for all tensors: any address, stride, layout and dtype of y, for
// one window of rows or several. It computes what the aligned one does, with the same bits, in
// another way:
//
//   A, x, B   loaded by the vectors of 16 bytes that hold them (lora_device/general_loads_cuda.h)
//   h         of all ranks in shared memory at once, up to 512
//   product   y = h B^T: rows are the 16 x 16 operand (lora_device/expand_product_cuda.h)
//   sums      [16 rows][256 outputs] through shared memory, so that a warp adds whole rows to y
//
// An item of expand, [256 outputs] x [all ranks] x [up to 16 rows]: warp w multiplies the outputs
// 32 w + [0, 32) of all rows, and then writes all outputs of the rows w and w + 8.

constexpr int kMaxSteps = kMaxLoraRank / 16;

/// A block has sums of shrink first, and later, in the same place, what expand needs.
struct GeneralShared {
  uint32_t flag;  // of this launch
  union {
    alignas(16) WarpSums sums[2];
    struct {
      StagedSums staged;
      HVector h[kMaxSteps * kHTileVectors];  // [step][hi or lo][lane]
    };
  };
};

/// The window of a block: its plan, its part of the exchange, its rows.
struct GeneralWindow {
  const FusedGeneralParams& p;
  GeneralShared& s;
  const WindowPlan& plan;
  FlaggedWord* words;
  WindowHead head;
  int first_row, num_row_tiles, num_tiles, num_partials;

  __device__ GeneralWindow(const FusedGeneralParams& p, GeneralShared& s, int window)
      : p(p),
        s(s),
        plan(*reinterpret_cast<const WindowPlan*>(reinterpret_cast<const std::byte*>(p.plan) +
                                                  window * p.window_plan_bytes)),
        words(static_cast<FlaggedWord*>(p.partials) + window * p.window_words),
        head(plan, p.plan_tag),
        first_row(window * kWindowRows),
        num_row_tiles(head.num_row_tiles),
        num_tiles(head.num_tiles),
        num_partials(head.num_partials) {}
};

/// load_general_a() for a transposed A, where the features of a rank lie `stride` elements apart.
__device__ __noinline__ inline void load_transposed_a(const uint16_t* data, int64_t stride,
                                                      int num_ranks, int num_features, int rank,
                                                      int feature, uint4 (&to)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = rank + i / 2 * 8, f = feature + i % 2 * 32;
    to[i] = gather_8(data + f * stride + r, stride, r < num_ranks ? num_features - f : 0);
  }
}

/// Loads A of the ranks g and g + 8: features 8 q + [0, 8) of each 32 of the warp's 64.
__device__ inline void load_general_a(const GeneralWindow& w, const ShrinkItem& item,
                                      const LoraWeight& a, ShrinkData& to) {
  const int rank = item.first_rank + lane_g(), left = w.p.in_features - item.feature;
  const auto* const data = static_cast<const std::byte*>(a.data);
  uint4 v[4] = {};
  if (w.p.is_transposed_a) {
    uint4 other[4];  // an argument by address; v itself must stay in registers
    load_transposed_a(static_cast<const uint16_t*>(a.data), a.row_stride,
                      data != nullptr ? a.rank : 0, w.p.in_features, rank, item.feature, other);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = other[i];
  } else {
    const auto* const end = data + ((a.rank - 1) * a.row_stride + w.p.in_features) * 2;
    const std::byte* from[4];
    int num[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = rank + i / 2 * 8;
      from[i] = data + (r * a.row_stride + item.feature + i % 2 * 32) * 2;
      num[i] = data != nullptr && r < a.rank ? left - i % 2 * 32 : 0;
    }
    load_anywhere(from, num, end, v);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) to.low[i] = v[i], to.high[i] = v[2 + i];
}

/// Loads x of row `row` of the window, which is row `row_of_tile` of the row tile.
__device__ inline void load_general_x(const GeneralWindow& w, const ShrinkItem& item, int row,
                                      int row_of_tile, ShrinkData& to) {
  const auto* const data = static_cast<const std::byte*>(w.p.input);
  const int64_t stride = w.p.input_stride;
  const auto* const end = data + ((w.p.num_rows - 1) * stride + w.p.in_features) * 2;
  const int left = row_of_tile < item.num_rows ? w.p.in_features - item.feature : 0;
  const auto* const first = data + ((w.first_row + row) * stride + item.feature) * 2;
  const std::byte* const from[2] = {first, first + 64};
  const int num[2] = {left, left - 32};
  load_anywhere(from, num, end, to.x);
}

/// Loads A and the first 8 rows of x of an item of shrink.
__device__ inline void load_general_shrink(const GeneralWindow& w, const ShrinkItem& item,
                                           const LoraWeight& a, ShrinkData& to) {
  load_general_a(w, item, a, to);
  load_general_x(w, item, item.row, lane_g(), to);
}

template <class T>
__device__ void multiply_general_shrink(const GeneralWindow& w, const ShrinkItem& item,
                                        ShrinkData& data, WarpSums& sums) {
  multiply_tiles<T>(item, data, sums, [&](int row) {
    load_general_x(w, item, w.plan.tiles[item.index].rows[row], row, data);
  });
}

/// A work item of expand: 256 outputs of B times all ranks, for the rows of a row tile.
struct GeneralExpandItem {
  int row_tile, slot, slice, num_rows, max_rank;
  int first;    // output
  int partial;  // row of the partial sums: of chunk 0, the first ranks and the first row
  Reciprocal row_reciprocal;
  int rows[2];  // rows w and w + 8 of the row tile, which warp w writes, as rows of the batch

  GeneralExpandItem() = default;
  __device__ GeneralExpandItem(const GeneralWindow& w, int item) {
    const FusedGeneralParams& p = w.p;
    row_tile = divide(item, p.row_tile_reciprocal[0]);
    const RowTile& from = w.plan.row_tiles[min(row_tile, kWindowRows - 1)];
    const int4 head = *reinterpret_cast<const int4*>(&from);
    const int warp = static_cast<int>(threadIdx.x / 32);
    rows[0] = w.first_row + from.rows[warp],
    rows[1] = w.first_row + from.rows[warp + kProductTileRows];
    int local = item - row_tile * p.items_per_row_tile[0];
    slice = 0;
#pragma unroll
    for (int i = 0; i < kMaxSlices - 1; ++i) slice += local >= p.end[0][i];
    if (slice > 0) local -= p.end[0][slice - 1];
    first = local * kBlockOutputs;
    slot = head.x;
    num_rows = head.y & 0xffff;
    max_rank = (head.y >> 16) * kTileRanks;
    row_reciprocal.multiplier = static_cast<uint32_t>(head.w);
    partial = slice * p.num_chunks * w.num_partials + from.first_partial;
  }
};

static_assert(kTileOutputs == kBlockOutputs && kRowTileRows == kProductRows);

/// An item of expand and what has been loaded for it.
struct GeneralExpand {
  GeneralExpandItem item;
  GeneralWeights weights;  // rank 0: nothing to do
  float factors[2];
  Weights<2, kWarpColumns> b;
  OldOutputs old[2];

  /// Looks up the weights and factors of the item. Nothing can be loaded before.
  __device__ void describe(const FusedGeneralParams& p) {
    const LoraWeight a = read_weight(p.a_at, item.slot, item.slice);
    const LoraWeight of_b = read_weight(p.b_at, item.slot, item.slice);
    int rank = min(min(a.rank, of_b.rank), item.max_rank);
    if (a.data == nullptr || of_b.data == nullptr) rank = 0;
    const int first = item.first + static_cast<int>(threadIdx.x / 32) * kGroupOutputs;
    weights = GeneralWeights(of_b.data, of_b.row_stride, p.is_transposed_b, rank, first,
                             p.slices[item.slice].width);
    const float scale = p.scale * of_b.scale;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const bool scales = p.row_scale != nullptr && is_row(j);
      factors[j] = scales ? scale * p.row_scale[item.rows[j]] : scale;
    }
  }
  /// Goes on to the next outputs of the slice, which need the same h. False where there are no
  /// more.
  __device__ bool advance(const FusedGeneralParams& p) {
    if (item.first + kBlockOutputs >= p.slices[item.slice].width) return false;
    item.first += kBlockOutputs;
    weights.b += kBlockOutputs * weights.output_bytes;
    weights.left -= kBlockOutputs;
    return true;
  }
  [[nodiscard]] __device__ bool is_row(int j) const {
    return static_cast<int>(threadIdx.x / 32) + j * kProductTileRows < item.num_rows;
  }
  /// Calls f(j, RowOutputs) for the rows w + 8 j that this warp writes.
  template <class F>
  __device__ void for_rows(const FusedGeneralParams& p, F&& f) const {
    const FusedSlice& slice = p.slices[item.slice];
    const int num = min(kBlockOutputs, slice.width - item.first);
    with_type(p.y_dtype, [&](auto type) {
      using Y = decltype(type);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!is_row(j)) continue;
        const int64_t at = int64_t{item.rows[j]} * slice.y_stride + item.first;
        f(j, RowOutputs<Y>(static_cast<Y*>(slice.y) + at, num));
      }
    });
  }
  /// Starts to load the first ranks of B and what y holds.
  __device__ void load(const FusedGeneralParams& p) {
    weights.load(0, b);
    load_old(p);
  }
  __device__ void load_old(const FusedGeneralParams& p) {
    for_rows(p, [&](int j, const auto& y) { y.load(old[j]); });
  }
};

/// Two words in a row, read by one load of 16 bytes.
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

/// h[i] = h of two neighbouring ranks, the pair at + i * kBlockThreads of `count`; zeros behind
/// them. `words` are the partial sums of chunk 0. There are kNumChains chains: 8, or with two
/// chunks two. False where the sums of another block did not come in time.
template <int kNumChains, int kPairs>
__device__ bool sum_pairs(const FusedGeneralParams& p, uint32_t flag, const FlaggedWord* words,
                          int at, int count, int chunk_stride, float2 (&h)[kPairs]) {
  float2 sum[kPairs][kNumChains];
#pragma unroll
  for (int i = 0; i < kPairs * kNumChains; ++i)
    sum[i / kNumChains][i % kNumChains] = {kNoSum, kNoSum};
  uint32_t spins = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.num_chunks; chunk += kNumChains) {
    WordPair v[kPairs][kNumChains];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kPairs * kNumChains; ++i) {
        const int pair = i / kNumChains, chain = i % kNumChains;
        WordPair& to = v[pair][chain];
        to = {{{kNoSum, flag}, {kNoSum, flag}}};
        const int index = at + pair * kBlockThreads;
        if (index < count && chunk + chain < p.num_chunks) {
          to = peek_pair(words + ((chunk + chain) * chunk_stride + 2 * index));
        }
      }
#pragma unroll
      for (int i = 0; i < kPairs * kNumChains; ++i) {
        const WordPair& of = v[i / kNumChains][i % kNumChains];
        ready &= of.v[0].flag == flag && of.v[1].flag == flag;
      }
    } while (!ready && ++spins <= p.spin_limit);
    if (!ready) return false;
#pragma unroll
    for (int i = 0; i < kPairs * kNumChains; ++i) {
      const WordPair& of = v[i / kNumChains][i % kNumChains];
      float2& to = sum[i / kNumChains][i % kNumChains];
      to.x += of.v[0].value, to.y += of.v[1].value;
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
#pragma unroll
    for (int d = 1; d < kNumChains; d *= 2) {
#pragma unroll
      for (int j = 0; j < kNumChains; j += 2 * d) {
        sum[i][j].x += sum[i][j + d].x, sum[i][j].y += sum[i][j + d].y;
      }
    }
    h[i] = at + i * kBlockThreads < count ? sum[i][0] : float2{0.0f, 0.0f};
  }
  return true;
}

/// Puts h of all ranks of an item into shared memory. False where the sums of another block did not
/// come in time. All threads call it.
template <class T, int kNumChains, int kPairs>
__device__ bool gather_pairs(const GeneralWindow& w, const GeneralExpandItem& item, int rank) {
  constexpr int kTilePairs = kTileRanks / 2;
  const int num_rows = item.num_rows, tiles = ceil_div(rank, kTileRanks);
  const int all_tiles = rank <= kTileRanks ? 1 : round_up(tiles, 2);
  const int count = all_tiles * num_rows * kTilePairs, chunk_stride = w.num_partials * kTileRanks;
  const FlaggedWord* const words = w.words + int64_t{item.partial} * kTileRanks;
  bool all_ready = true;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < count; base += kPairs * kBlockThreads) {
    float2 h[kPairs];
    all_ready &= sum_pairs<kNumChains, kPairs>(w.p, w.s.flag, words, base,
                                               tiles * num_rows * kTilePairs, chunk_stride, h);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = base + i * kBlockThreads, tile_row = at / kTilePairs;
      if (at >= count) break;
      const int tile = divide(tile_row, item.row_reciprocal), row = tile_row - tile * num_rows;
      const int r = tile * kTileRanks + at % kTilePairs * 2;
      const float x = r < rank ? h[i].x : 0.0f, y = r + 1 < rank ? h[i].y : 0.0f;
      const T hi[2] = {narrow<T>(x), narrow<T>(y)};
      const T lo[2] = {narrow<T>(x - widen(hi[0])), narrow<T>(y - widen(hi[1]))};
      const HPlace place(rank, r);
      HVector* const to = w.s.h + place.step * kHTileVectors + row % kProductTileRows * 4 + place.q;
      const int word = r % 4 / 2 * 2 + row / kProductTileRows;
      reinterpret_cast<uint32_t*>(to)[word] = pack(hi[0], hi[1]);
      reinterpret_cast<uint32_t*>(to + 32)[word] = pack(lo[0], lo[1]);
    }
  }
  return __syncthreads_and(all_ready);
}

template <class T>
__device__ bool gather_general_h(const GeneralWindow& w, const GeneralExpandItem& item, int rank) {
  __syncthreads();  // nobody reads the h before any longer
  if (w.p.num_chunks <= 2) return gather_pairs<T, 2, 2>(w, item, rank);
  return gather_pairs<T, kChains, 1>(w, item, rank);
}

/// Multiplies an item whose h is in shared memory and stages the sums there. All threads call it.
template <class T>
__device__ void multiply_item(GeneralShared& s, GeneralExpand& expand) {
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
  __syncthreads();  // the sums before have been read
  stage(sum, s.staged);
  __syncthreads();
}

__device__ inline void write_item(const GeneralWindow& w, const GeneralExpand& expand) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  expand.for_rows(w.p, [&](int j, const auto& y) {
    y.store(expand.old[j], expand.factors[j], true, w.s.staged[warp + j * kProductTileRows]);
  });
}

/// Computes all partial sums of a row tile again, those of other blocks too, and publishes them,
/// with the same bits. All threads call it. The arguments are plain numbers, because what a
/// function that is not inlined takes by address could not stay in the registers of its caller.
template <class T>
__device__ __noinline__ void recompute_general_sums(const FusedGeneralParams& p, GeneralShared& s,
                                                    int row_tile, int slice, int rank) {
  const GeneralWindow w(p, s, static_cast<int>(blockIdx.y));
  const int first_tile = w.plan.row_tiles[row_tile].first_tile;
  const int num_tiles = ceil_div(rank, kTileRanks);
#pragma unroll 1
  for (int i = 0; i < num_tiles * p.num_chunks; ++i) {
    const int tile = divide(i, p.chunk_reciprocal), chunk = i - tile * p.num_chunks;
    const ShrinkItem shrink(p, w.plan, w.num_partials,
                            ((first_tile + tile) * p.num_slices + slice) * p.num_chunks + chunk);
    ShrinkData data;
    load_general_shrink(w, shrink, read_weight(p.a_at, shrink.slot, shrink.slice), data);
    __syncthreads();
    multiply_general_shrink<T>(w, shrink, data, s.sums[0]);
    __syncthreads();
    publish_sums(w.words, s.flag, shrink.partial, shrink.num_rows, s.sums[0]);
  }
}

}  // namespace heddle::cuda::lora
