// A block of rows against a tile of keys: scores, weights, weighted values. Include inside a file
// that Highway compiles once per target.

#if defined(HEDDLE_OPS_ATTENTION_ROW_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_ATTENTION_ROW_BLOCK_INL_H_
#undef HEDDLE_OPS_ATTENTION_ROW_BLOCK_INL_H_
#else
#define HEDDLE_OPS_ATTENTION_ROW_BLOCK_INL_H_
#endif

#include "core/math.h"
#include "ops/attention/cpu/attention_kernels.h"
#include "ops/attention/cpu/key_tile-inl.h"
#include "ops/attention/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

/// What one item keeps on the stack: some 80 KB.
struct ItemScratch {
  alignas(64) float keys[kKeyTileElements];    // [head_dim, tile]
  alignas(64) float values[kKeyTileElements];  // [tile, row_stride], of a cache of f8e4m3 alone
  alignas(64) float q[kRowElements];           // [num_rows, row_stride], rotated and scaled
  alignas(64) float o[kRowElements];           // [num_rows, row_stride], sums of weighted values
  alignas(64) float weights[kRowBlock * kMaxTileKeys];  // scores, then weights of a block of rows
  RowSoftmax state[kMaxItemRows];
  int64_t lo[kMaxItemRows], hi[kMaxItemRows];  // the positions that a row sees: [lo, hi)
  KeyPlaces places;                            // of the tile's keys
  const std::byte* value_rows[kMaxTileKeys];   // of its values
  std::byte* next_rows[kMaxTileKeys];          // of the keys of the tile after it
};

/// Rows [first, first + num_rows) of an item, at most kRowBlock, that all see the keys [lo, hi) of
/// a tile.
struct QueryBlock {
  int first, num_rows, lo, hi;
};

/// s[r][c] = q[r] . key c for kRows rows and the keys of kVecs vectors. A score is one chain over
/// d, ascending.
template <int kRows, int kVecs>
HWY_INLINE void score_strip(const float* HWY_RESTRICT q, int q_stride,
                            const float* HWY_RESTRICT keys, int head_dim, int tile,
                            float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  V sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int i = 0; i < head_dim; ++i, keys += tile) {
    V key[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) key[v] = hn::LoadU(d, keys + v * kStep);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V query = hn::Set(d, q[r * q_stride + i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(query, key[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r][v], d, s + r * kMaxTileKeys + v * kStep);
  }
}

/// o[r] += weight[r][j] * value j for kRows rows and kVecs vectors along the head, keys j
/// ascending. A partial vector (width < one vector, kVecs = 1) reads no element of V past `width`.
template <class T, int kRows, int kVecs, bool kPartial>
HWY_INLINE void accumulate_strip(const float* HWY_RESTRICT weights, const std::byte* const* values,
                                 int64_t offset, int lo, int hi, size_t width,
                                 float* HWY_RESTRICT o, int o_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  V sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::LoadU(d, o + r * o_stride + v * kStep);
  }
  for (int j = lo; j < hi; ++j) {
    const T* row = reinterpret_cast<const T*>(values[j] + offset);
    V value[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      value[v] = kPartial ? load_f32_n(d, row, width) : load_f32(d, row + v * kStep);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, weights[r * kMaxTileKeys + j]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(weight, value[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r][v], d, o + r * o_stride + v * kStep);
  }
}

/// Takes the keys of a tile into a block of rows: scores, weights, weighted values of T.
template <class T, int kRows>
void attend_block(const AttentionParams& p, const QueryBlock& block, ItemScratch& scratch) {
  const hn::ScalableTag<float> d;
  const int step = static_cast<int>(hn::Lanes(d));
  const int stride = p.stride, tile = p.tile;
  float* o = scratch.o + block.first * stride;
  const float* q = scratch.q + block.first * stride;

  const int end = round_up(block.hi, kKeyLanes);
  for (int c = block.lo / kKeyLanes * kKeyLanes; c < end;) {
    const bool two = c + 2 * step <= end;
    if (two) {
      score_strip<kRows, 2>(q, stride, scratch.keys + c, p.head_dim, tile, scratch.weights + c);
    } else {
      score_strip<kRows, 1>(q, stride, scratch.keys + c, p.head_dim, tile, scratch.weights + c);
    }
    c += two ? 2 * step : step;
  }

  for (int r = 0; r < kRows; ++r) {
    update_row(d, p.soft_cap, block.lo, block.hi, scratch.weights + r * kMaxTileKeys,
               scratch.state[block.first + r], o + r * stride, stride);
  }

  for (int i = 0; i < p.head_dim;) {
    const int64_t offset = i * static_cast<int64_t>(sizeof(T));
    const int left = p.head_dim - i;
    if (left >= 2 * step) {
      accumulate_strip<T, kRows, 2, false>(scratch.weights, scratch.value_rows, offset, block.lo,
                                           block.hi, 0, o + i, stride);
    } else if (left >= step) {
      accumulate_strip<T, kRows, 1, false>(scratch.weights, scratch.value_rows, offset, block.lo,
                                           block.hi, 0, o + i, stride);
    } else {
      accumulate_strip<T, kRows, 1, true>(scratch.weights, scratch.value_rows, offset, block.lo,
                                          block.hi, static_cast<size_t>(left), o + i, stride);
    }
    i += left >= 2 * step ? 2 * step : step;
  }
}

template <class T>
void attend_block_of(const AttentionParams& p, const QueryBlock& block, ItemScratch& scratch) {
  switch (block.num_rows) {
    case 1: return attend_block<T, 1>(p, block, scratch);
    case 2: return attend_block<T, 2>(p, block, scratch);
    case 3: return attend_block<T, 3>(p, block, scratch);
    case 4: return attend_block<T, 4>(p, block, scratch);
    case 5: return attend_block<T, 5>(p, block, scratch);
    default: static_assert(kRowBlock == 6); return attend_block<T, kRowBlock>(p, block, scratch);
  }
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
