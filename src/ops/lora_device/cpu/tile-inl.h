// The inner loops of lora_product: a tile of rows times a block of columns. Included once per
// target by lora_product_cpu.cpp.

#if defined(HEDDLE_OPS_LORA_LORA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LORA_LORA_TILE_INL_H_
#undef HEDDLE_OPS_LORA_LORA_TILE_INL_H_
#else
#define HEDDLE_OPS_LORA_LORA_TILE_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "core/math.h"
#include "cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::lora::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

using D = hn::CappedTag<float, 16>;
using Vec = hn::Vec<D>;
constexpr int kLanes = int{hn::MaxLanes(D())};

/// f32 copy of a part of W whose rows cannot be loaded as vectors: 16 KB, at least 32 of its rows.
constexpr int kScratchFloats = 4096;

/// One weight matrix as the loops see it.
template <class T>
struct Weight {
  const T* data;
  int64_t stride;  // elements between two depths (is_by_width) or two columns
  int64_t depth, width;
  bool is_by_width;

  /// How many depths, from 0 on, can be loaded `columns` wide from column n on: reading past the
  /// width is harmless as long as it stays before the matrix's last element.
  HWY_INLINE int64_t loadable_depths(int64_t n, int64_t columns) const {
    const int64_t excess = n + columns - width;
    if (excess <= 0) return depth;
    if (stride <= 0) return 0;
    const int64_t depths = depth - ceil_div(excess, stride);
    return depths > 0 ? depths : 0;
  }
};

/// acc[row][v] += input[row][k] * w[k][v] for k in [0, depth), ascending, one fused multiply-add
/// each.
template <class T, int kRows, int kVecs>
HWY_INLINE void accumulate(const float* const (&input)[kRows], const T* HWY_RESTRICT w,
                           int64_t stride, int64_t depth, Vec (&acc)[kRows][kVecs]) {
  const D d;
  for (int64_t k = 0; k < depth; ++k, w += stride) {
    Vec weights[kVecs];
    for (int v = 0; v < kVecs; ++v) weights[v] = load_f32(d, w + v * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const Vec factor = hn::Set(d, input[row][k]);
      for (int v = 0; v < kVecs; ++v) acc[row][v] = hn::MulAdd(factor, weights[v], acc[row][v]);
    }
  }
}

/// scratch[k][i] = W[k0 + k][n + i] for k < depths, i < columns; zero past the width. depths is
/// rounded up to 4.
template <class T>
HWY_INLINE void copy_rows(const Weight<T>& w, int64_t k0, int64_t depths, int64_t n, int columns,
                          float* HWY_RESTRICT scratch) {
  const D d;
  for (int64_t k = 0; k < depths; ++k, scratch += columns) {
    const T* row = w.data + (k0 + k) * w.stride + n;
    for (int i = 0; i < columns; i += kLanes) {
      const int64_t left = w.width - n - i;
      const Vec values = left >= kLanes ? load_f32(d, row + i)
                         : left > 0     ? load_f32_n(d, row + i, size_t(left))
                                        : hn::Zero(d);
      hn::StoreU(values, d, scratch + i);
    }
  }
}

/// Four elements of each of kLanes / 4 columns, one after another in a vector of f32: columns[4 *
/// b][k ...].
HWY_INLINE Vec gather_pieces(const float* const* columns, int64_t k) {
  const D d;
  Vec v = hn::LoadDup128(d, columns[kLanes - 4] + k);
  for (int i = kLanes - 8; i >= 0; i -= 4) {
    v = hn::IfThenElse(hn::FirstN(d, size_t(i + 4)), hn::LoadDup128(d, columns[i] + k), v);
  }
  return v;
}
template <class T>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> gather_16_bit_pieces(const T* const* columns,
                                                                 int64_t k) {
  const hn::CappedTag<uint64_t, kLanes / 4> d64;
  const auto piece = [&](int i) HWY_ATTR {
    uint64_t bits;
    __builtin_memcpy(&bits, columns[i] + k, sizeof(bits));
    return hn::Set(d64, bits);
  };
  auto v = piece(kLanes - 4);
  for (int i = kLanes - 8; i >= 0; i -= 4) {
    v = hn::IfThenElse(hn::FirstN(d64, size_t(i / 4 + 1)), piece(i), v);
  }
  return hn::BitCast(hn::Rebind<uint16_t, D>(), v);
}
HWY_INLINE Vec gather_pieces(const half* const* columns, int64_t k) {
  return widen_f16(D(), gather_16_bit_pieces(columns, k));
}
HWY_INLINE Vec gather_pieces(const bfloat16* const* columns, int64_t k) {
  return widen_bf16(D(), gather_16_bit_pieces(columns, k));
}

/// Transposes the 4 by 4 squares that the four vectors hold in each of their 128-bit blocks.
HWY_INLINE void transpose_squares(Vec* w) {
  const D d;
  const hn::RepartitionToWide<D> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, w[0], w[1]));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, w[2], w[3]));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, w[0], w[1]));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, w[2], w[3]));
  w[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  w[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  w[2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
  w[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
}

/// Transposes kLanes vectors: w[j][i] becomes w[i][j].
HWY_INLINE void transpose(Vec (&w)[kLanes]) {
  for (int i = 0; i < kLanes; i += 4) transpose_squares(w + i);
#if HWY_TARGET <= HWY_AVX2
  const D d;
  for (int j = 0; j < 4; ++j) {
    if constexpr (kLanes == 8) {
      const Vec w0 = w[j], w1 = w[j + 4];
      w[j] = hn::ConcatLowerLower(d, w1, w0);
      w[j + 4] = hn::ConcatUpperUpper(d, w1, w0);
    } else if constexpr (kLanes == 16) {  // likewise for squares of blocks
      const Vec w0 = w[j], w1 = w[j + 4], w2 = w[j + 8], w3 = w[j + 12];
      const Vec even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(w1), w0);
      const Vec odd01 = hn::OddEvenBlocks(w1, hn::SwapAdjacentBlocks(w0));
      const Vec even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(w3), w2);
      const Vec odd23 = hn::OddEvenBlocks(w3, hn::SwapAdjacentBlocks(w2));
      w[j] = hn::ConcatLowerLower(d, even23, even01);
      w[j + 4] = hn::ConcatLowerLower(d, odd23, odd01);
      w[j + 8] = hn::ConcatUpperUpper(d, even23, even01);
      w[j + 12] = hn::ConcatUpperUpper(d, odd23, odd01);
    }
  }
#endif
}

/// w[j][i] = columns[i][k + j] for kDepths depths j, four or kLanes of them.
template <int kDepths, class T>
HWY_INLINE void load_transposed(const T* const (&columns)[kLanes], int64_t k, Vec (&w)[kDepths]) {
  if constexpr (kDepths == kLanes) {
    for (int i = 0; i < kLanes; ++i) w[i] = load_f32(D(), columns[i] + k);
    transpose(w);
  } else {
    for (int i = 0; i < 4; ++i) w[i] = gather_pieces(columns + i, k);
    transpose_squares(w);
  }
}

/// acc[row] += sum over k in [k0, k1) of input[row][k - k0] * W[k][n ...], k ascending, from a W
/// whose depth is without gaps: kLanes columns advance together, and their elements are transposed
/// in registers.
template <class T, int kRows>
HWY_INLINE void accumulate_transposed(const Weight<T>& w, const float* const (&input)[kRows],
                                      int64_t k0, int64_t k1, int64_t n, Vec (&acc)[kRows][1]) {
  const T* columns[kLanes];
  for (int i = 0; i < kLanes; ++i) {  // those past the width repeat the last one and are dropped
    columns[i] = w.data + (n + i < w.width ? n + i : w.width - 1) * w.stride + k0;
  }
  const auto add = [&](auto loaded, int64_t at, int64_t k, int64_t depths) HWY_ATTR {
    constexpr int kDepths = decltype(loaded)::value;
    Vec weights[kDepths];
    load_transposed<kDepths>(columns, at, weights);
    for (int j = 0; j < kDepths && j < depths; ++j) {
      for (int row = 0; row < kRows; ++row) {
        acc[row][0] = hn::MulAdd(hn::Set(D(), input[row][k + j]), weights[j], acc[row][0]);
      }
    }
  };
  const std::integral_constant<int, kLanes> full;
  const std::integral_constant<int, 4> four;
  const int64_t depths = k1 - k0;
  int64_t k = 0;
  for (; k + kLanes <= depths; k += kLanes) add(full, k, k, kLanes);
  for (; k + 4 <= depths; k += 4) add(four, k, k, 4);
  if (k == depths) return;
  T tail[kLanes][4] = {};  // the matrix may end with the last depth
  for (int i = 0; i < kLanes; ++i) {
    for (int64_t j = 0; j < depths - k; ++j) tail[i][j] = columns[i][k + j];
    columns[i] = tail[i];
  }
  add(four, 0, k, depths - k);
}

/// acc[row][v] += sum over k in [k0, k1) of input[row][k - k0] * W[k][n + v * kLanes ...], k
/// ascending, from a W whose width is without gaps. Depths that cannot be loaded as they lie go
/// through a copy, with the same sums.
template <class T, int kRows, int kVecs>
HWY_INLINE void accumulate_general(const Weight<T>& w, const float* const (&input)[kRows],
                                   int64_t k0, int64_t k1, int64_t n, Vec (&acc)[kRows][kVecs]) {
  constexpr int kColumns = kVecs * kLanes;
  constexpr int64_t kScratchDepths = kScratchFloats / kColumns;
  const int64_t loadable = w.loadable_depths(n, kColumns);
  int64_t k = k0 < loadable ? (k1 < loadable ? k1 : loadable) : k0;
  if (k > k0) accumulate(input, w.data + k0 * w.stride + n, w.stride, k - k0, acc);
  while (k < k1) {
    HWY_ALIGN float scratch[kScratchFloats];
    const int64_t depths = k1 - k < kScratchDepths ? k1 - k : kScratchDepths;
    copy_rows(w, k, depths, n, kColumns, scratch);
    const float* part[kRows];
    for (int row = 0; row < kRows; ++row) part[row] = input[row] + (k - k0);
    accumulate(part, scratch, kColumns, depths, acc);
    k += depths;
  }
}

/// y[v] = T(y[v] + factor * sums[v]) or T(factor * sums[v]) for the first `columns` columns.
template <class Y, int kVecs>
HWY_INLINE void finish_row(Y* HWY_RESTRICT y, const Vec (&sums)[kVecs], float factor, bool add_to_y,
                           int64_t columns) {
  const D d;
  const Vec f = hn::Set(d, factor);
  for (int v = 0; v < kVecs; ++v, y += kLanes, columns -= kLanes) {
    if (columns >= kLanes) {
      store_f32(d, add_to_y ? hn::MulAdd(f, sums[v], load_f32(d, y)) : hn::Mul(f, sums[v]), y);
    } else if (columns > 0) {
      const size_t left = size_t(columns);
      const Vec old = add_to_y ? load_f32_n(d, y, left) : hn::Zero(d);
      store_f32_n(d, add_to_y ? hn::MulAdd(f, sums[v], old) : hn::Mul(f, sums[v]), y, left);
    }
  }
}

}  // namespace heddle::cpu::lora::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
