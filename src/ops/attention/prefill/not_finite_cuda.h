#pragma once

// Tiles that some rows see in part and whose values are not all finite. Both prefill kernels need
// this: a masked key has weight 0, and 0 times infinity or NaN would be NaN in rows that do not see
// the key.

#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/attention/device/finite_values_cuda.h"
#include "ops/attention/prefill/softmax_cuda.h"

namespace heddle::cuda::attention::prefill {

/// Whether this thread's vectors of the values, as Copier brought them, hold an element that is not
/// finite. Its exponent is all ones, so 1 added to it carries into the sign.
template <class T, class S>
__device__ bool any_not_finite(const Copier<S>& copier) {
  using C = Copier<S>;
  constexpr uint32_t kOne = kExponents<T> & ~(kExponents<T> << 1);
  uint32_t found = 0;
#pragma unroll
  for (int i = 0; i < S::kKeys / C::kRowStep; ++i) {
#pragma unroll
    for (int v = 0; v < C::kVectors; ++v) {
      const uint4 four = *reinterpret_cast<const uint4*>(copier.to + S::kValuesAt +
                                                         i * C::kRowStep * S::kRowBytes + v * 128);
      for (const uint32_t two : {four.x, four.y, four.z, four.w}) {
        found |= (two & kExponents<T>)+kOne;
      }
    }
  }
  return (found & 0x80008000) != 0;
}

/// o += rows * values for 16 rows, 16 keys: see add_guarded_values. seen: all bits of the (row,
/// key) that are not masked.
template <class T, int kDim>
__device__ void add_guarded_product(uint32_t values_at, const uint32_t (&rows)[4],
                                    const uint32_t (&seen)[4], float (&o)[kDim / 8][4]) {
  uint32_t weighed[4], weightless[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t is_zero = __vcmpeq2(rows[i] & 0x7fff7fff, 0);
    weighed[i] = seen[i] & ~is_zero & kOnes<T>;
    weightless[i] = seen[i] & is_zero & kOnes<T>;
  }
#pragma unroll 1
  for (int d = 0; d < kDim / 8; ++d) {
    uint32_t values[4];
    load_matrices_transposed(values, values_at ^ d / 2 * 32);
    uint32_t finite[2], plus[2], minus[2], both[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two = d % 2 == 0 ? values[i] : values[2 + i];
      const uint32_t bad = not_finite<T>(two);
      const uint32_t is_nan = bad & ~__vcmpeq2(two & 0x7fff7fff, kExponents<T>);
      const uint32_t is_minus = __vcmpeq2(two & 0x80008000, 0x80008000);
      finite[i] = two & ~bad;
      both[i] = bad & kOnes<T>;
      plus[i] = both[i] & (is_nan | ~is_minus);
      minus[i] = both[i] & (is_nan | is_minus);
    }
    mma_m16n8k16<T>(o[d], rows, finite[0], finite[1]);
    float up[4] = {}, down[4] = {};
    mma_m16n8k16<T>(up, weighed, plus[0], plus[1]);
    mma_m16n8k16<T>(up, weightless, both[0], both[1]);
    mma_m16n8k16<T>(down, weighed, minus[0], minus[1]);
    mma_m16n8k16<T>(down, weightless, both[0], both[1]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (up[e] > 0.0f) o[d][e] += INFINITY;
      if (down[e] > 0.0f) o[d][e] -= INFINITY;
    }
  }
}

/// PrefillSoftmax::add_values for a tile that is masked for some row and holds values that are not
/// finite. The finite values are multiplied as ever. For the others, products of indicators (1 for
/// an infinity of that sign that a row sees) tell which sums become infinite. A sum is NaN where
/// both infinities meet, where a value is NaN, or where an infinite value has weight 0. So the bits
/// are those of a tile without a mask.
template <class T, class S>
__device__ void add_guarded_values(const LaneAddresses<S>& at, Scores<S>& s, float scale_log2,
                                   PrefillSoftmax<S>& softmax) {
  float o[S::kProductRows][S::kDim / 8][4];  // indexed at run time, so not in registers
#pragma unroll
  for (int i = 0; i < S::kProductRows * S::kDim / 2; ++i)
    (&o[0][0][0])[i] = (&softmax.o[0][0][0])[i];
#pragma unroll
  for (int k = 0; k < S::kKeys / 16; ++k) {
    uint32_t seen[S::kProductRows][4], rows[S::kProductRows][4];
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const x = &s[m][2 * k + i / 2][i % 2 * 2];
        seen[m][i] = (x[0] != -INFINITY ? 0x0000ffff : 0) | (x[1] != -INFINITY ? 0xffff0000 : 0);
      }
    }
    softmax.template weigh<T>(s, k, scale_log2, rows);
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
      add_guarded_product<T, S::kDim>(at.values + k * 16 * S::kRowBytes, rows[m], seen[m], o[m]);
    }
  }
#pragma unroll
  for (int i = 0; i < S::kProductRows * S::kDim / 2; ++i)
    (&softmax.o[0][0][0])[i] = (&o[0][0][0])[i];
}

}  // namespace heddle::cuda::attention::prefill
