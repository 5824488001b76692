#pragma once

// RoPE inside decode. Rounding rotated keys and queries to their dtype would take most of the tolerance, so each is the sum of two values
// of the dtype, and a product is the sum of three: the one that is left out is below 2^-16 (bf16) or 2^-22 (f16) of it.

#include "ops/attention/attention_decode_shape_cuda.h"
#include "ops/attention/attention_decode_tile_cuda.h"

namespace heddle::cuda {

/// Two neighbours as values of a dtype and what those lack.
struct SplitWord {
  uint32_t high, rest;
};
template <class T>
__device__ SplitWord split_two(float2 v) {
  const uint32_t high = narrow_two<T>(v);
  const float2 rounded = widen_two<T>(high);
  return {high, narrow_two<T>({v.x - rounded.x, v.y - rounded.y})};
}

/// Within 2^-21 of the exact values, in a few instructions: for each key and pair.
__device__ inline CosSin cos_sin_fast(int position, Turns frequency) {
  const auto turns =
      static_cast<int32_t>(static_cast<uint32_t>((static_cast<Turns>(position) * frequency) >> 32));
  const float radians = static_cast<float>(turns) * 0x1.921fb6p-30f;  // 2 pi * 2^-32
  return {__cosf(radians), __sinf(radians)};
}

/// Rotates the rows of q in shared memory, whose q_rest is zeros. The query is the last token.
template <class T, class Shape>
__device__ void rotate_rows(const RotaryFrequencies& rope, int position, std::byte* q,
                            std::byte* q_rest) {
  constexpr int kPairs = Shape::kDim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * kPairs; i += Shape::kThreads) {
    const int row = i / kPairs, pair = i % kPairs;
    if (pair >= rope.num_pairs) continue;
    const CosSin turn = cos_sin_at(position, rope.frequency[pair]);
    const uint32_t low = element_offset(row, pair, Shape::kRowBytes);
    const uint32_t high = element_offset(row, pair + rope.num_pairs, Shape::kRowBytes);
    const auto at = [](std::byte* rows, uint32_t offset) -> T& {
      return *reinterpret_cast<T*>(rows + offset);
    };
    const float2 turned = rotate(widen(at(q, low)), widen(at(q, high)), turn);
    at(q, low) = narrow<T>(turned.x);
    at(q, high) = narrow<T>(turned.y);
    at(q_rest, low) = narrow<T>(turned.x - widen(at(q, low)));
    at(q_rest, high) = narrow<T>(turned.y - widen(at(q, high)));
  }
}

/// How far half a tile of keys turns, for all tiles: sums of two angles are taken by the sum of two turns.
template <class Shape>
__device__ void put_near_turns(const RotaryFrequencies& rope, DecodeShared<Shape>& s) {
  constexpr int kPairs = Shape::kDim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kHalfTile * kPairs; i += Shape::kThreads) {
    const int key = i / kPairs, pair = i % kPairs;
    if (pair >= rope.num_pairs) continue;
    s.near[key][pair] = cos_sin_at(key, rope.frequency[pair]);
    if (key == 0) s.frequency[pair] = rope.frequency[pair];
  }
}

/// The turn by a and then by b.
__device__ inline CosSin add_turns(CosSin a, CosSin b) {
  return {fmaf(-a.sin, b.sin, a.cos * b.cos), fmaf(a.cos, b.sin, a.sin * b.cos)};
}

/// Scores of a tile whose keys are rotated on the way from shared memory.
template <class T, class Shape>
class RotatedScores {
 public:
  static constexpr int kDim = Shape::kDim, kRowTiles = Shape::kRowTiles;
  using Scores = float[kRowTiles][4];

  __device__ RotatedScores(DecodeShared<Shape>& s, const std::byte* q, int num_pairs, int num_steps,
                           int lane)
      : s_(s),
        far_(s.scratch[threadIdx.x / 32].far),
        num_pairs_(num_pairs),
        num_steps_(num_steps),
        lane_(lane),
        q_(shared_address(q)),
        q_rest_(shared_address(s.q_rest)) {}

  /// s = the products of the keys at `position` and behind with the rows of q.
  __device__ void operator()(const std::byte* keys, int position, Scores& s) const {
    Sums sums = num_pairs_ % 8 == 0 ? products_of_vectors(keys, position)
                                    : products_of_elements(keys, position);
#pragma unroll 1
    for (int k = (2 * num_pairs_ + 15) / 16; k < num_steps_; ++k) {
      uint32_t a[4];
      load_matrices(a, key_vectors(keys, 2 * k, 2 * k + 1));
      add_product(sums.whole, a, row_vectors(q_, 2 * k, 2 * k + 1));
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[tile][i] = sums.whole[tile][i] + (sums.rest_of_key[tile][i] + sums.rest_of_q[tile][i]);
      }
    }
  }

 private:
  /// Products of values, of what keys lack and of what q lacks: three chains.
  struct Sums {
    Scores whole, rest_of_key, rest_of_q;
  };

  /// Where a lane finds its row of two vectors of 16 bytes: of keys 0-7 and 8-15 the first vector, then the second.
  [[nodiscard]] __device__ uint32_t key_vectors(const std::byte* keys, int first,
                                                int second) const {
    const int vector = lane_ < 16 ? first : second;
    return shared_address(keys) + vector_offset(lane_ & 15, vector, 2 * kDim);
  }
  /// The same of rows of q: of each row tile both vectors.
  [[nodiscard]] __device__ uint32_t row_vectors(uint32_t q, int first, int second) const {
    const int vector = (lane_ & 8) == 0 ? first : second;
    const int row = kRowTiles == 1 ? lane_ & 7 : (lane_ & 7) + (lane_ >> 4) * 8;
    return q + vector_offset(row, vector, 2 * kDim);
  }
  /// The key of word i of a lane, and the first of its two elements in a step.
  [[nodiscard]] __device__ int key_of(int i) const { return lane_ / 4 + i % 2 * kHalfTile; }
  [[nodiscard]] __device__ int element_of(int i) const { return lane_ % 4 * 2 + i / 2 * 8; }

  __device__ static void add_product(Scores& s, const uint32_t (&a)[4], uint32_t q) {
    uint32_t rows[4];
    load_matrices(rows, q);
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(s[tile], a, rows[2 * tile], rows[2 * tile + 1]);
    }
  }
  __device__ void add_split(Sums& sums, const uint32_t (&high)[4], const uint32_t (&rest)[4],
                            int first, int second) const {
    const uint32_t q = row_vectors(q_, first, second);
    add_product(sums.whole, high, q);
    add_product(sums.rest_of_key, rest, q);
    add_product(sums.rest_of_q, high, row_vectors(q_rest_, first, second));
  }

  /// The turns of the first keys of both halves of the tile at `position`.
  __device__ void put_far_turns(int position) const {
    __syncwarp();
#pragma unroll
    for (int first = 0; first < kDim / 2; first += 32) {
      const int pair = first + lane_;
      if (pair >= num_pairs_) continue;
      const Turns frequency = s_.frequency[pair];
      far_[0][pair] = cos_sin_fast(position, frequency);
      far_[1][pair] = cos_sin_fast(position + kHalfTile, frequency);
    }
    __syncwarp();
  }

  /// Of vectors of 8 pairs. A product takes the first and the second elements of 8 pairs together.
  __device__ Sums products_of_vectors(const std::byte* keys, int position) const {
    Sums sums = {};
    put_far_turns(position);
    const int count = num_pairs_ / 8;
    const CosSin* const near = s_.near[lane_ / 4];
#pragma unroll 4
    for (int v = 0; v < count; ++v) {
      uint32_t high[4], rest[4];
      load_matrices(high, key_vectors(keys, v, v + count));
      const int pair = 8 * v + lane_ % 4 * 2;
      const float4 key = *reinterpret_cast<const float4*>(near + pair);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 base = *reinterpret_cast<const float4*>(far_[half] + pair);
        const CosSin first = add_turns({key.x, key.y}, {base.x, base.y});
        const CosSin second = add_turns({key.z, key.w}, {base.z, base.w});
        const float2 x = widen_two<T>(high[half]), y = widen_two<T>(high[half + 2]);
        const float2 a = rotate(x.x, y.x, first), b = rotate(x.y, y.y, second);
        const SplitWord low = split_two<T>({a.x, b.x}), up = split_two<T>({a.y, b.y});
        high[half] = low.high;
        rest[half] = low.rest;
        high[half + 2] = up.high;
        rest[half + 2] = up.rest;
      }
      add_split(sums, high, rest, v, v + count);
    }
    return sums;
  }

  /// Of any number of pairs: element by element.
  __device__ __noinline__ Sums products_of_elements(const std::byte* keys, int position) const {
    Sums sums = {};
#pragma unroll 1
    for (int k = 0; k < (2 * num_pairs_ + 15) / 16; ++k) {
      uint32_t high[4], rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = key_of(i), element = 16 * k + element_of(i);
        const SplitWord turned = split_two<T>({rotated(keys, key, element, position + key),
                                               rotated(keys, key, element + 1, position + key)});
        high[i] = turned.high;
        rest[i] = turned.rest;
      }
      add_split(sums, high, rest, 2 * k, 2 * k + 1);
    }
    return sums;
  }
  [[nodiscard]] __device__ float rotated(const std::byte* keys, int key, int element,
                                         int position) const {
    const auto load = [&](int e) {
      return widen(*reinterpret_cast<const T*>(keys + element_offset(key, e, 2 * kDim)));
    };
    const float own = load(element);
    if (element >= 2 * num_pairs_) return own;
    const bool is_low = element < num_pairs_;
    const int pair = is_low ? element : element - num_pairs_;
    const CosSin turn = cos_sin_fast(position, s_.frequency[pair]);
    const float other = load(is_low ? element + num_pairs_ : pair);
    return is_low ? rotate(own, other, turn).x : rotate(other, own, turn).y;
  }

  DecodeShared<Shape>& s_;
  CosSin (&far_)[2][Shape::kDim / 2];
  int num_pairs_, num_steps_, lane_;
  uint32_t q_, q_rest_;
};

}  // namespace heddle::cuda
