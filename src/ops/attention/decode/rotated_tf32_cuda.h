#pragma once

// Scores of rotated keys and queries that are rounded to tf32: of bf16, of which that keeps three bits more, with one product instead of
// the three of attention_decode_rotated_split_cuda.h.

#include "ops/attention/decode/rotate_cuda.h"

namespace heddle::cuda::attention::decode {

/// Scores of a tile: products of the first elements of pairs, or of what stands first in a step, and of the second.
template <class T, class Shape>
class Tf32Scores : RotatingTile<T, Shape> {
  using Base = RotatingTile<T, Shape>;
  using typename Base::Scores;
  /// Rows of q in turned_q, words: lanes of four rows do not meet in a bank.
  static constexpr int kRowWords = Shape::kDim + 8;
  static_assert(Shape::kRows * kRowWords * 4 <= sizeof(DecodeShared<Shape>::rotated_q));

 public:
  __device__ Tf32Scores(DecodeShared<Shape>& s, const std::byte* q, int num_pairs, int num_steps)
      : Base(s, q, num_pairs, num_steps) {}

  /// Rotates the rows of q, of the token at `position`, on the way to turned_q. All threads call.
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
      } else {  // one of the last steps is rotated in part
        const int element = 2 * pair;
        to[element] = to_tf32(load(element));
        to[element + 1] = to_tf32(load(element + 1));
      }
    }
  }

  /// s = the products of the keys at `position` and behind with the rows of q.
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

  /// Of vectors of 8 pairs. Lane (g, q) has pairs 2q and 2q + 1 as numbers q and q + 4 of a product.
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
