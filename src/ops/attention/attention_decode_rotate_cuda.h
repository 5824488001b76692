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

/// Scores of a tile whose keys are rotated on the way from shared memory.
template <class T, class Shape>
class RotatedScores {
 public:
  static constexpr int kDim = Shape::kDim, kRowTiles = Shape::kRowTiles;
  using Scores = float[kRowTiles][4];

  __device__ RotatedScores(const DecodeShared<Shape>& s, const std::byte* q, int num_pairs,
                           int num_steps, int lane)
      : frequency_(s.frequency),
        num_pairs_(num_pairs),
        num_steps_(num_steps),
        lane_(lane),
        q_(shared_address(q) + row_place(lane)),
        q_rest_(shared_address(s.q_rest) + row_place(lane)) {}

  /// s = the products of the keys at `position` and behind with the rows of q.
  __device__ void operator()(const std::byte* keys, int position, Scores& s) const {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] = 0.0f;
    }
    const int num_rotated =
        num_pairs_ % 16 == 0 ? add_halves(keys, position, s) : add_elements(keys, position, s);
#pragma unroll 1
    for (int k = num_rotated; k < num_steps_; ++k) {
      uint32_t a[4];
      load_matrices(a, key_place(keys, k));
      add_product(s, a, q_, k);
    }
  }

 private:
  __device__ static uint32_t row_place(int lane) {
    return kRowTiles == 1 ? vector_offset(lane & 7, lane >> 3, 2 * kDim)
                          : vector_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1, 2 * kDim);
  }
  [[nodiscard]] __device__ uint32_t key_place(const std::byte* keys, int k) const {
    return (shared_address(keys) + vector_offset(lane_ & 15, lane_ >> 4, 2 * kDim)) ^
           static_cast<uint32_t>(k << 5);
  }
  /// The key of word i of a lane, and the first of its two elements in a step.
  [[nodiscard]] __device__ int key_of(int i) const { return lane_ / 4 + i % 2 * 8; }
  [[nodiscard]] __device__ int element_of(int i) const { return lane_ % 4 * 2 + i / 2 * 8; }

  __device__ void add_product(Scores& s, const uint32_t (&a)[4], uint32_t q, int k) const {
    uint32_t rows[4];
    load_matrices(rows, q ^ static_cast<uint32_t>(k << 5));
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(s[tile], a, rows[2 * tile], rows[2 * tile + 1]);
    }
  }
  __device__ void add_split(Scores& s, const uint32_t (&high)[4], const uint32_t (&rest)[4],
                            int k) const {
    add_product(s, rest, q_, k);
    add_product(s, high, q_rest_, k);
    add_product(s, high, q_, k);
  }

  /// Both elements of a pair lie at the same place of two steps. Returns the number of steps that are done.
  __device__ int add_halves(const std::byte* keys, int position, Scores& s) const {
    const int half = num_pairs_ / 16;
#pragma unroll 1
    for (int k = 0; k < half; ++k) {
      uint32_t low[4], high[4], low_rest[4], high_rest[4];
      load_matrices(low, key_place(keys, k));
      load_matrices(high, key_place(keys, k + half));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Turns* frequency = frequency_ + 16 * k + element_of(i);
        const int key = position + key_of(i);
        const CosSin first = cos_sin_fast(key, frequency[0]);
        const CosSin second = cos_sin_fast(key, frequency[1]);
        const float2 x = widen_two<T>(low[i]), y = widen_two<T>(high[i]);
        const float2 a = rotate(x.x, y.x, first), b = rotate(x.y, y.y, second);
        const SplitWord turned_low = split_two<T>({a.x, b.x});
        const SplitWord turned_high = split_two<T>({a.y, b.y});
        low[i] = turned_low.high;
        low_rest[i] = turned_low.rest;
        high[i] = turned_high.high;
        high_rest[i] = turned_high.rest;
      }
      add_split(s, low, low_rest, k);
      add_split(s, high, high_rest, k + half);
    }
    return 2 * half;
  }

  /// Any number of pairs: element by element.
  __device__ __noinline__ int add_elements(const std::byte* keys, int position, Scores& s) const {
    const int num_rotated = (2 * num_pairs_ + 15) / 16;
#pragma unroll 1
    for (int k = 0; k < num_rotated; ++k) {
      uint32_t high[4], rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = key_of(i), element = 16 * k + element_of(i);
        const SplitWord turned = split_two<T>({rotated(keys, key, element, position + key),
                                               rotated(keys, key, element + 1, position + key)});
        high[i] = turned.high;
        rest[i] = turned.rest;
      }
      add_split(s, high, rest, k);
    }
    return num_rotated;
  }
  [[nodiscard]] __device__ float rotated(const std::byte* keys, int key, int element,
                                         int position) const {
    const auto load = [&](int e) {
      return widen(*reinterpret_cast<const T*>(keys + element_offset(key, e, 2 * kDim)));
    };
    const float own = load(element);
    if (element >= 2 * num_pairs_) return own;
    const bool is_low = element < num_pairs_;
    const CosSin turn = cos_sin_fast(position, frequency_[is_low ? element : element - num_pairs_]);
    const float other = load(is_low ? element + num_pairs_ : element - num_pairs_);
    return is_low ? rotate(own, other, turn).x : rotate(other, own, turn).y;
  }

  const Turns* frequency_;
  int num_pairs_, num_steps_, lane_;
  uint32_t q_, q_rest_;
};

}  // namespace heddle::cuda
