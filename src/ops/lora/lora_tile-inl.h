// The inner loops of lora_product: a tile of rows times a block of columns. Included once per target by
// lora_product_cpu.cpp.

#if defined(HEDDLE_OPS_LORA_LORA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LORA_LORA_TILE_INL_H_
#undef HEDDLE_OPS_LORA_LORA_TILE_INL_H_
#else
#define HEDDLE_OPS_LORA_LORA_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

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

  /// How many depths, from 0 on, can be loaded `columns` wide from column n on: reading past the width is harmless as
  /// long as it stays before the matrix's last element.
  HWY_INLINE int64_t loadable_depths(int64_t n, int64_t columns) const {
    if (!is_by_width) return 0;
    const int64_t excess = n + columns - width;
    if (excess <= 0) return depth;
    if (stride <= 0) return 0;
    const int64_t depths = depth - (excess + stride - 1) / stride;
    return depths > 0 ? depths : 0;
  }
};

/// acc[row][v] += u[row][k] * w[k][v] for k in [0, depth), ascending, one fused multiply-add each.
template <class T, int kRows, int kVecs>
HWY_INLINE void accumulate(const float* const (&u)[kRows], const T* HWY_RESTRICT w, int64_t stride,
                           int64_t depth, Vec (&acc)[kRows][kVecs]) {
  const D d;
  for (int64_t k = 0; k < depth; ++k, w += stride) {
    Vec weights[kVecs];
    for (int v = 0; v < kVecs; ++v) weights[v] = load_f32(d, w + v * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const Vec factor = hn::Set(d, u[row][k]);
      for (int v = 0; v < kVecs; ++v) acc[row][v] = hn::MulAdd(factor, weights[v], acc[row][v]);
    }
  }
}

/// scratch[k][i] = W[k0 + k][n + i] for k < depths, i < columns; zero past the width. depths is rounded up to 4.
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

/// The same from a W whose depth is without gaps, in squares of 4 by 4.
template <class T>
HWY_INLINE void copy_transposed(const Weight<T>& w, int64_t k0, int64_t depths, int64_t n,
                                int columns, float* HWY_RESTRICT scratch) {
  const hn::FixedTag<float, 4> d4;
  const auto load = [&](int64_t column, int64_t k) HWY_ATTR {
    const T* p = w.data + column * w.stride + k0 + k;
    return column >= w.width ? hn::Zero(d4)
           : k + 4 <= depths ? load_f32(d4, p)
                             : load_f32_n(d4, p, size_t(depths - k));
  };
  for (int i = 0; i < columns; i += 4) {
    for (int64_t k = 0; k < depths; k += 4) {
      const auto c0 = load(n + i, k), c1 = load(n + i + 1, k);
      const auto c2 = load(n + i + 2, k), c3 = load(n + i + 3, k);
      const auto low01 = hn::InterleaveLower(d4, c0, c1), low23 = hn::InterleaveLower(d4, c2, c3);
      const auto high01 = hn::InterleaveUpper(d4, c0, c1), high23 = hn::InterleaveUpper(d4, c2, c3);
      float* to = scratch + k * columns + i;
      hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, to);
      hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, to + columns);
      hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, to + 2 * columns);
      hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, to + 3 * columns);
    }
  }
}

/// acc[row][v] += sum over k in [k0, k1) of u[row][k - k0] * W[k][n + v * kLanes ...], k ascending. Depths that cannot
/// be loaded as they lie go through the scratch, with the same sums.
template <class T, int kRows, int kVecs>
HWY_INLINE void accumulate_any(const Weight<T>& w, const float* const (&u)[kRows], int64_t k0,
                               int64_t k1, int64_t n, Vec (&acc)[kRows][kVecs]) {
  constexpr int kColumns = kVecs * kLanes;
  constexpr int64_t kScratchDepths = kScratchFloats / kColumns;
  const int64_t loadable = w.loadable_depths(n, kColumns);
  int64_t k = k0 < loadable ? (k1 < loadable ? k1 : loadable) : k0;
  if (k > k0) accumulate(u, w.data + k0 * w.stride + n, w.stride, k - k0, acc);
  while (k < k1) {
    HWY_ALIGN float scratch[kScratchFloats];
    const int64_t depths = k1 - k < kScratchDepths ? k1 - k : kScratchDepths;
    w.is_by_width ? copy_rows(w, k, depths, n, kColumns, scratch)
                  : copy_transposed(w, k, depths, n, kColumns, scratch);
    const float* part[kRows];
    for (int row = 0; row < kRows; ++row) part[row] = u[row] + (k - k0);
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

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
