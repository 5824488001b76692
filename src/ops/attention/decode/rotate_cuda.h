#pragma once

// RoPE inside decode: keys rotate on the way from shared memory to the tensor cores.
//
// The angle of a key is the sum of two: that of the first key of its half tile, which a warp
// computes for every tile (the tile rotation), and that from there to the key, which a block
// computes once (the in-tile rotation). Rounding rotated keys to their dtype would use up most of
// the tolerance; what is done instead is in rope_scores_cuda.h.

#include "core/math.h"
#include "ops/attention/decode/tile_cuda.h"

namespace heddle::cuda::attention::decode {

/// Within 2^-21 of the exact values, in a few instructions: for each key and pair.
__device__ inline CosSin cos_sin_fast(int position, Turns frequency) {
  const auto turns =
      static_cast<int32_t>(static_cast<uint32_t>((static_cast<Turns>(position) * frequency) >> 32));
  const float radians = static_cast<float>(turns) * 0x1.921fb6p-30f;  // 2 pi * 2^-32
  return {__cosf(radians), __sinf(radians)};
}

/// Fills the table of in-tile rotations. All threads call.
template <class Shape>
__device__ void put_in_tile_rotations(const RotaryFrequencies& rope, DecodeShared<Shape>& s) {
  constexpr int kPairs = Shape::kDim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kHalfTile * kPairs; i += Shape::kThreads) {
    const int key = i / kPairs, pair = i % kPairs;
    if (pair >= rope.num_pairs) continue;
    s.in_tile[key][pair] = cos_sin_at(key, rope.frequency[pair]);
    if (key == 0) s.frequency[pair] = rope.frequency[pair];
  }
}

/// The rotation by a and then by b.
__device__ inline CosSin compose(CosSin a, CosSin b) {
  return {fmaf(-a.sin, b.sin, a.cos * b.cos), fmaf(a.cos, b.sin, a.sin * b.cos)};
}

/// Keys of a tile that are rotated on the way from shared memory.
template <class T, class Shape>
class RotatingTile {
 protected:
  static constexpr int kDim = Shape::kDim, kRowTiles = Shape::kRowTiles;
  using Scores = float[kRowTiles][4];

  __device__ RotatingTile(DecodeShared<Shape>& s, const std::byte* q, int num_pairs, int num_steps)
      : s_(s),
        tile_rotation_(s.scratch[threadIdx.x / 32].tile_rotation),
        num_pairs_(num_pairs),
        num_steps_(num_steps),
        lane_(static_cast<int>(threadIdx.x) % 32),
        q_(shared_address(q)) {}

  /// Steps of 16 elements that have a rotated one.
  [[nodiscard]] __device__ int rotated_steps() const { return ceil_div(2 * num_pairs_, 16); }

  /// The address of a lane's row for ldmatrix: keys 0 to 7 and 8 to 15 of the first vector, then of
  /// the second.
  [[nodiscard]] __device__ uint32_t key_vectors(const std::byte* keys, int first,
                                                int second) const {
    const int vector = lane_ < 16 ? first : second;
    return shared_address(keys) + vector_offset(lane_ & 15, vector, 2 * kDim);
  }
  /// `vectors` for rows of q: both vectors of each row tile.
  [[nodiscard]] __device__ uint32_t row_vectors(uint32_t q, int first, int second) const {
    const int vector = (lane_ & 8) == 0 ? first : second;
    const int row = kRowTiles == 1 ? lane_ & 7 : (lane_ & 7) + (lane_ >> 4) * 8;
    return q + vector_offset(row, vector, 2 * kDim);
  }
  __device__ static void add_product(Scores& s, const uint32_t (&a)[4], uint32_t q) {
    uint32_t rows[4];
    load_matrices(rows, q);
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(s[tile], a, rows[2 * tile], rows[2 * tile + 1]);
    }
  }
  /// s += the products of the elements after the rotated ones.
  __device__ void add_unrotated_steps(const std::byte* keys, Scores& s) const {
#pragma unroll 1
    for (int k = rotated_steps(); k < num_steps_; ++k) {
      uint32_t a[4];
      load_matrices(a, key_vectors(keys, 2 * k, 2 * k + 1));
      add_product(s, a, row_vectors(q_, 2 * k, 2 * k + 1));
    }
  }

  /// Computes the rotations of the first keys of both halves of the tile at `position`.
  __device__ void put_tile_rotations(int position) const {
    __syncwarp();
#pragma unroll
    for (int first = 0; first < kDim / 2; first += 32) {
      const int pair = first + lane_;
      if (pair >= num_pairs_) continue;
      const Turns frequency = s_.frequency[pair];
      tile_rotation_[0][pair] = cos_sin_fast(position, frequency);
      tile_rotation_[1][pair] = cos_sin_fast(position + kHalfTile, frequency);
    }
    __syncwarp();
  }
  /// Pairs p and p + 1 of a key after rotation: their first elements, and their second ones.
  struct RotatedPairs {
    float2 first, second;
  };
  /// Rotates the words of both. in_tile: the in-tile rotations of p and p + 1.
  [[nodiscard]] __device__ RotatedPairs rotation(uint32_t first, uint32_t second,
                                                 const float4& in_tile, int half, int pair) const {
    const float4 tile_rotation = *reinterpret_cast<const float4*>(tile_rotation_[half] + pair);
    const CosSin turns[2] = {compose({in_tile.x, in_tile.y}, {tile_rotation.x, tile_rotation.y}),
                             compose({in_tile.z, in_tile.w}, {tile_rotation.z, tile_rotation.w})};
    const float2 x = widen_two<T>(first), y = widen_two<T>(second);
    const float2 a = rotate(x.x, y.x, turns[0]), b = rotate(x.y, y.y, turns[1]);
    return {{a.x, b.x}, {a.y, b.y}};
  }
  [[nodiscard]] __device__ float4 in_tile_rotations(int pair) const {
    return *reinterpret_cast<const float4*>(s_.in_tile[lane_ / 4] + pair);
  }
  /// Element `element` of a key of the tile at `position`, rotated if it belongs to a pair.
  [[nodiscard]] __device__ float rotated(const std::byte* keys, int key, int element,
                                         int position) const {
    const auto load = [&](int e) {
      return widen(*reinterpret_cast<const T*>(keys + element_offset(key, e, 2 * kDim)));
    };
    const float own = load(element);
    if (element >= 2 * num_pairs_) return own;
    const bool is_low = element < num_pairs_;
    const int pair = is_low ? element : element - num_pairs_;
    const CosSin rotation = cos_sin_fast(position + key, s_.frequency[pair]);
    const float other = load(is_low ? element + num_pairs_ : pair);
    return is_low ? rotate(own, other, rotation).x : rotate(other, own, rotation).y;
  }

  DecodeShared<Shape>& s_;
  CosSin (&tile_rotation_)[2][Shape::kDim / 2];
  int num_pairs_, num_steps_, lane_;
  uint32_t q_;
};

}  // namespace heddle::cuda::attention::decode
