#pragma once

// What few calls or few tiles need: rotation inside, and values that are not finite in tiles that some rows see in part.

#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/mma_cuda.h"
#include "cuda/rotary_cuda.h"

#include "ops/attention/attention_prefill_softmax_cuda.h"

namespace heddle::cuda::prefill {

// Queries and keys that are rotated inside count twice: x = high + low, both of type T, where low is what the rounding to T takes off. The
// scores are the sums of high * high, low * high and high * low, so the rotation costs no precision.

/// Elements of `row` of a tile: those of `pair` turned, and the low parts of all written; pairs past the last are the elements that stay.
template <class T, class S>
__device__ void rotate_pair(std::byte* high, std::byte* low, int row, int pair, int num_pairs,
                            CosSin turn) {
  const bool turns = pair < num_pairs;
  const uint32_t at[2] = {element_offset<S::kDim>(row, turns ? pair : 2 * pair),
                          element_offset<S::kDim>(row, turns ? pair + num_pairs : 2 * pair + 1)};
  if (!turns) {
    *reinterpret_cast<T*>(low + at[0]) = *reinterpret_cast<T*>(low + at[1]) = narrow<T>(0.0f);
    return;
  }
  const float2 turned = rotate(widen(*reinterpret_cast<const T*>(high + at[0])),
                               widen(*reinterpret_cast<const T*>(high + at[1])), turn);
  const T top[2] = {narrow<T>(turned.x), narrow<T>(turned.y)};
  *reinterpret_cast<T*>(high + at[0]) = top[0];
  *reinterpret_cast<T*>(high + at[1]) = top[1];
  *reinterpret_cast<T*>(low + at[0]) = narrow<T>(turned.x - widen(top[0]));
  *reinterpret_cast<T*>(low + at[1]) = narrow<T>(turned.y - widen(top[1]));
}

/// The queries of a warp, each angle exact.
template <class T, class S>
__device__ void rotate_queries(const PrefillParams& p, const RotaryFrequencies& rope,
                               const Item& item, int warp, int lane, std::byte* shared) {
#pragma unroll 1
  for (int i = 0; i < min(S::kWarpRows, item.num_rows - warp * S::kWarpRows); ++i) {
    const int row = warp * S::kWarpRows + i;
    const int position = item.kv_len - item.q_len + row_of(p, item, row).token;
#pragma unroll 1
    for (int pair = lane; pair < S::kDim / 2; pair += 32) {
      const Turns frequency = pair < rope.num_pairs ? rope.frequency[pair] : 0;
      rotate_pair<T, S>(shared, shared + S::kLowQueriesAt, row, pair, rope.num_pairs,
                        cos_sin_at(position, frequency));
    }
  }
  __syncwarp();
}

/// A share of the keys of a tile by each warp. The angle of its first key is exact, the others turn by one step at a time in f32, up to
/// 31 roundings. Positions alone decide, since tiles begin at fixed ones.
template <class T, class S>
__device__ void rotate_keys(const RotaryFrequencies& rope, int first_key, int warp, int lane,
                            std::byte* shared) {
  constexpr int kCount = S::kKeys / S::kWarps;
  const int first = warp * kCount;
#pragma unroll 1
  for (int pair = lane; pair < S::kDim / 2; pair += 32) {
    const Turns frequency = pair < rope.num_pairs ? rope.frequency[pair] : 0;
    const CosSin step = cos_sin(frequency);
    CosSin turn = cos_sin_at(first_key + first, frequency);
#pragma unroll 4
    for (int i = 0; i < kCount; ++i) {
      rotate_pair<T, S>(shared + S::kKeysAt, shared + S::kLowKeysAt, first + i, pair,
                        rope.num_pairs, turn);
      turn = {fmaf(-turn.sin, step.sin, turn.cos * step.cos),
              fmaf(turn.sin, step.cos, turn.cos * step.sin)};
    }
  }
}

/// Two elements as one word: the bits of their exponents, and 1 in both.
template <class T>
inline constexpr uint32_t kExponents = 0x7f807f80;
template <>
inline constexpr uint32_t kExponents<__half> = 0x7c007c00;
template <class T>
inline constexpr uint32_t kOnes = 0x3f803f80;
template <>
inline constexpr uint32_t kOnes<__half> = 0x3c003c00;

/// All bits of the elements that are infinite or NaN.
template <class T>
__device__ uint32_t not_finite(uint32_t two) {
  return __vcmpeq2(two & kExponents<T>, kExponents<T>);
}

/// Whether this thread's vectors of the values, as Copier brought them, hold an element that is not finite: 1 added to an exponent of ones
/// carries into the sign.
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

/// o += rows * values for 16 rows, 16 keys: see add_guarded_values. seen: all bits of the (row, key) that are not masked.
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

/// Softmax::add_values where a tile that is masked for some row holds values that are not finite: 0 times those would make NaN of the rows
/// that do not see them. The finite ones are multiplied as ever; of the others, products of indicators tell which sums become infinite, or
/// NaN where both infinities meet, or where a value is NaN or has weight 0. So the bits are those of a tile without a mask.
template <class T, class S>
__device__ void add_guarded_values(const LaneAddresses<S>& at, Scores<S>& s, float scale_log2,
                                   Softmax<S>& softmax) {
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

}  // namespace heddle::cuda::prefill
