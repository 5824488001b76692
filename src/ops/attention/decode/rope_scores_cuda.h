#pragma once

// Scores of keys and queries that rotate inside.
//
// Rotated values do not fit their dtype. There are two ways to keep what rounding would take off:
//   SplitScores   x = high + low, two values of the dtype. A score is the sum of three products;
//   the
//                 fourth, low * low, is below 2^-16 (bf16) or 2^-22 (f16) of it and left out.
//   Tf32Scores    tf32 has three bits more than bf16, so one product will do.

#include "ops/attention/decode/rotate_cuda.h"

namespace heddle::cuda::attention::decode {

/// Two elements side by side, rounded, and what the rounding took off.
struct SplitWord {
  uint32_t high, rest;
};
template <class T>
__device__ SplitWord split_two(float2 v) {
  const uint32_t high = narrow_two<T>(v);
  const float2 rounded = widen_two<T>(high);
  return {high, narrow_two<T>({v.x - rounded.x, v.y - rounded.y})};
}

/// Scores as sums of three products: high * high, low * high and high * low.
template <class T, class Shape>
class SplitScores : RotatingTile<T, Shape> {
  using Base = RotatingTile<T, Shape>;
  using typename Base::Scores;

 public:
  __device__ SplitScores(DecodeShared<Shape>& s, const std::byte* q, int num_pairs, int num_steps)
      : Base(s, q, num_pairs, num_steps), q_rest_(shared_address(s.rotated_q)) {}

  /// Rotates the rows of q, of the token at `position`, in place. What rounding takes off
  /// goes to rotated_q. All threads call.
  __device__ static void rotate_rows(const RotaryFrequencies& rope, int position, std::byte* q,
                                     DecodeShared<Shape>& s) {
    constexpr int kPairs = Shape::kDim / 2;
    std::byte* const q_rest = s.rotated_q;
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * Shape::kRowBytes / 16;
         i += Shape::kThreads) {
      reinterpret_cast<uint4*>(q_rest)[i] = {};
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * kPairs; i += Shape::kThreads) {
      const int row = i / kPairs, pair = i % kPairs;
      if (pair >= rope.num_pairs) continue;
      const CosSin rotation = cos_sin_at(position, rope.frequency[pair]);
      const uint32_t low = element_offset(row, pair, Shape::kRowBytes);
      const uint32_t high = element_offset(row, pair + rope.num_pairs, Shape::kRowBytes);
      const auto at = [](std::byte* rows, uint32_t offset) -> T& {
        return *reinterpret_cast<T*>(rows + offset);
      };
      const float2 rotated = rotate(widen(at(q, low)), widen(at(q, high)), rotation);
      at(q, low) = narrow<T>(rotated.x);
      at(q, high) = narrow<T>(rotated.y);
      at(q_rest, low) = narrow<T>(rotated.x - widen(at(q, low)));
      at(q_rest, high) = narrow<T>(rotated.y - widen(at(q, high)));
    }
  }

  /// s = the products of the keys from `position` on with the rows of q.
  __device__ void operator()(const std::byte* keys, int position, Scores& s) const {
    Sums sums = this->num_pairs_ % 8 == 0 ? products_of_vectors(keys, position)
                                          : products_of_elements(keys, position);
    this->add_unrotated_steps(keys, sums.whole);
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[tile][i] = sums.whole[tile][i] + (sums.rest_of_key[tile][i] + sums.rest_of_q[tile][i]);
      }
    }
  }

 private:
  struct Sums {
    Scores whole, rest_of_key, rest_of_q;
  };

  __device__ void add_split(Sums& sums, const uint32_t (&high)[4], const uint32_t (&rest)[4],
                            int first, int second) const {
    const uint32_t q = this->row_vectors(this->q_, first, second);
    this->add_product(sums.whole, high, q);
    this->add_product(sums.rest_of_key, rest, q);
    this->add_product(sums.rest_of_q, high, this->row_vectors(q_rest_, first, second));
  }

  /// Where pairs come in whole vectors of 8: a product takes the first and the second elements of 8
  /// pairs.
  __device__ Sums products_of_vectors(const std::byte* keys, int position) const {
    Sums sums = {};
    this->put_tile_rotations(position);
    const int count = this->num_pairs_ / 8;
#pragma unroll 4
    for (int v = 0; v < count; ++v) {
      uint32_t high[4], rest[4];
      load_matrices(high, this->key_vectors(keys, v, v + count));
      const int pair = 8 * v + this->lane_ % 4 * 2;
      const float4 in_tile = this->in_tile_rotations(pair);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto rotated = this->rotation(high[half], high[half + 2], in_tile, half, pair);
        const SplitWord low = split_two<T>(rotated.first), up = split_two<T>(rotated.second);
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
    for (int k = 0; k < this->rotated_steps(); ++k) {
      uint32_t high[4], rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = this->lane_ / 4 + i % 2 * kHalfTile;
        const int element = 16 * k + this->lane_ % 4 * 2 + i / 2 * 8;
        const SplitWord rotated = split_two<T>({this->rotated(keys, key, element, position),
                                                this->rotated(keys, key, element + 1, position)});
        high[i] = rotated.high;
        rest[i] = rotated.rest;
      }
      add_split(sums, high, rest, 2 * k, 2 * k + 1);
    }
    return sums;
  }

  uint32_t q_rest_;
};

/// Scores as products of tf32: the sum of those of the first elements of pairs, and of the second
/// ones.
template <class T, class Shape>
class Tf32Scores : RotatingTile<T, Shape> {
  using Base = RotatingTile<T, Shape>;
  using typename Base::Scores;
  /// Words between rows of q in rotated_q: 8 more, so that lanes of four rows do not meet in a
  /// bank.
  static constexpr int kRowWords = Shape::kDim + 8;
  static_assert(Shape::kRows * kRowWords * 4 <= sizeof(DecodeShared<Shape>::rotated_q));

 public:
  __device__ Tf32Scores(DecodeShared<Shape>& s, const std::byte* q, int num_pairs, int num_steps)
      : Base(s, q, num_pairs, num_steps) {}

  /// Rotates the rows of q, of the token at `position`, on the way to rotated_q. All
  /// threads call.
  __device__ static void rotate_rows(const RotaryFrequencies& rope, int position,
                                     const std::byte* q, DecodeShared<Shape>& s) {
    constexpr int kPairs = Shape::kDim / 2;
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * kPairs; i += Shape::kThreads) {
      const int row = i / kPairs, pair = i % kPairs;
      const auto load = [&](int element) {
        return widen(
            *reinterpret_cast<const T*>(q + element_offset(row, element, Shape::kRowBytes)));
      };
      uint32_t* const to = words_of(s) + row * kRowWords;
      if (pair < rope.num_pairs) {
        const float2 rotated = rotate(load(pair), load(pair + rope.num_pairs),
                                      cos_sin_at(position, rope.frequency[pair]));
        to[pair] = to_tf32(rotated.x);
        to[pair + rope.num_pairs] = to_tf32(rotated.y);
      } else {  // elements that stay as they are
        const int element = 2 * pair;
        to[element] = to_tf32(load(element));
        to[element + 1] = to_tf32(load(element + 1));
      }
    }
  }

  /// s = the products of the keys from `position` on with the rows of q.
  __device__ void operator()(const std::byte* keys, int position, Scores& s) const {
    Sums sums = this->num_pairs_ % 8 == 0 ? products_of_vectors(keys, position)
                                          : products_of_elements(keys, position);
    this->add_unrotated_steps(keys, sums.first);
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] = sums.first[tile][i] + sums.second[tile][i];
    }
  }

 private:
  struct Sums {
    Scores first, second;
  };

  __device__ static uint32_t* words_of(DecodeShared<Shape>& s) {
    return reinterpret_cast<uint32_t*>(s.rotated_q);
  }
  /// The row of q of a lane.
  [[nodiscard]] __device__ uint32_t* row_of(int tile) const {
    return words_of(this->s_) + (tile * Shape::kRowTile + this->lane_ / 4) * kRowWords;
  }

  /// Of vectors of 8 pairs. Lane (g, q) has pairs 2q and 2q + 1 as numbers q and q + 4 of a
  /// product.
  __device__ Sums products_of_vectors(const std::byte* keys, int position) const {
    Sums sums = {};
    this->put_tile_rotations(position);
    const int count = this->num_pairs_ / 8;
#pragma unroll 4
    for (int v = 0; v < count; ++v) {
      uint32_t words[4], first[4], second[4];
      load_matrices(words, this->key_vectors(keys, v, v + count));
      const int pair = 8 * v + this->lane_ % 4 * 2;
      const float4 in_tile = this->in_tile_rotations(pair);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto rotated = this->rotation(words[half], words[half + 2], in_tile, half, pair);
        first[half] = to_tf32(rotated.first.x);
        first[half + 2] = to_tf32(rotated.first.y);
        second[half] = to_tf32(rotated.second.x);
        second[half + 2] = to_tf32(rotated.second.y);
      }
#pragma unroll
      for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
        const uint32_t* const row = row_of(tile) + pair;
        const uint2 a = *reinterpret_cast<const uint2*>(row);
        const uint2 b = *reinterpret_cast<const uint2*>(row + this->num_pairs_);
        mma_m16n8k8_tf32(sums.first[tile], first, a.x, a.y);
        mma_m16n8k8_tf32(sums.second[tile], second, b.x, b.y);
      }
    }
    return sums;
  }

  /// Of any number of pairs: element by element, 8 at a time.
  __device__ __noinline__ Sums products_of_elements(const std::byte* keys, int position) const {
    Sums sums = {};
#pragma unroll 1
    for (int k = 0; k < 2 * this->rotated_steps(); ++k) {
      uint32_t a[4];
      const int element = 8 * k + this->lane_ % 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = this->lane_ / 4 + i % 2 * kHalfTile;
        a[i] = to_tf32(this->rotated(keys, key, element + i / 2 * 4, position));
      }
#pragma unroll
      for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
        const uint32_t* const row = row_of(tile) + element;
        mma_m16n8k8_tf32(sums.first[tile], a, row[0], row[4]);
      }
    }
    return sums;
  }
};

}  // namespace heddle::cuda::attention::decode
