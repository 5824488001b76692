#pragma once

// A tile of 32 keys of a cache of f8e4m3. A part of the ring has the codes, 32 rows of kDim bytes,
// and after them the 32 scales of their tokens. Codes become f16, which holds each of them exactly,
// in registers, whatever q is; rows of bf16 are made f16 in units of a power of two for each row.
// The products are those of tile_cuda.h, twice 16 keys. ldmatrix takes two codes as one element:
//
//   keys, of 16 bytes: lane (g, q) gets bytes 4q ... 4q + 3 of key g
//
//        bytes    4q    4q+1  |  4q+2  4q+3       The first two become a[0], the others a[2]. So
//               +-----+-----+ | +-----+-----+     columns 2q, 2q + 1 of a step of 16 elements stand
//        key g  |    a[0]   | | |    a[2]   |     for elements 4q, 4q + 1, and columns 2q + 8,
//               +-----+-----+ | +-----+-----+     2q + 9 for 4q + 2, 4q + 3, in rows of q too.
//
//   values, transposed: lane (g, q) gets bytes 2g, 2g + 1 of values 2q and 2q + 1
//
//                       2g   2g+1                 One permutation of the four bytes joins the two
//                     +----+----+                 keys of an element; then the first two become
//        key 2q       | b0 | b1 |  b0 b2 = a[0]   a[0], the others a[1]. So row g of 16 elements
//        key 2q + 1   | b2 | b3 |  b1 b3 = a[1]   stands for element 2g, and row g + 8 for 2g + 1.
//                     +----+----+
//
// The score of a key is multiplied with its scale in f32, and so is its weight, before that is
// rounded to f16: see ValueUnit.

#include <cstdint>

#include "ops/attention/decode/softmax_state_cuda.h"

namespace heddle::cuda::attention::decode {

/// The low and the high two of four codes as f16.
__device__ inline uint32_t widen_low(uint32_t codes) {
  return widen_two_e4m3(static_cast<uint16_t>(codes));
}
__device__ inline uint32_t widen_high(uint32_t codes) {
  return widen_two_e4m3(static_cast<uint16_t>(codes >> 16));
}

/// The scales of the keys g and g + 8 of 16 keys of a tile, in lane (g, q).
template <class Shape>
__device__ float2 scales_of(const std::byte* part, int first_key, int lane) {
  const auto* scales = reinterpret_cast<const float*>(part + Shape::kScalesAt);
  return {scales[first_key + lane / 4], scales[first_key + lane / 4 + 8]};
}

/// The row of a tile, and the vector of it, whose address a lane gives for 16 keys and 32 elements;
/// `step`: of 32 elements.
template <class Shape>
__device__ uint32_t lane_row(const std::byte* part, int lane) {
  return shared_address(part) + key_offset<Shape>(lane & 15, lane >> 4);
}
template <class Shape>
__device__ uint32_t step_of_row(uint32_t row, int first_key, int step) {
  const int vector = 2 * step;
  return (row ^ static_cast<uint32_t>((vector & 7) << 4)) +
         static_cast<uint32_t>(first_key * Shape::kKeyBytes + (vector >> 3 << 7));
}

/// The rows of q as f16 in registers: [16 elements][row tile]. Of rows 2q, 2q + 1 of each tile:
/// unit, a power of two that they were divided by, 1 where they are f16.
template <class Shape>
struct CodeRowFragments {
  uint32_t at[Shape::kDim / 16][Shape::kRowTiles][2];
  float unit[Shape::kRowTiles][2];

  __device__ void load(const std::byte* q, int lane, bool is_bfloat16) {
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
#pragma unroll
      for (int k = 0; k < Shape::kDim / 16; ++k) {
        const uint32_t offset = element_offset(tile * kDecodeRowTile + lane / 4,
                                               16 * k + lane % 4 * 4, Shape::kRowBytes);
        const auto four = *reinterpret_cast<const uint2*>(q + offset);
        at[k][tile][0] = four.x;
        at[k][tile][1] = four.y;
      }
      const float its_unit = is_bfloat16 ? narrow_row(tile) : 1.0f;
      unit[tile][0] = __shfl_sync(~0u, its_unit, lane % 4 * 8);
      unit[tile][1] = __shfl_sync(~0u, its_unit, lane % 4 * 8 + 4);
    }
  }

 private:
  /// Makes row g of a tile f16: its largest element in [2^14, 2^15), so that nothing overflows, and
  /// what is lost of an element is at most 2^-39 of the largest. Returns the unit.
  __device__ float narrow_row(int tile) {
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < Shape::kDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) most = __vmaxu2(most, at[k][tile][i] & 0x7fff7fffu);
    }
    most = max(most & 0xffffu, most >> 16);
    most = max(most, __shfl_xor_sync(~0u, most, 1));
    most = max(most, __shfl_xor_sync(~0u, most, 2));
    // The exponent of the largest, of 2^-112 at least; one that is not finite stays so.
    const uint32_t exponent = min(max(most >> 7, 15u), 254u);
    const float factor = __uint_as_float((268u - exponent) << 23);
#pragma unroll
    for (int k = 0; k < Shape::kDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 two = widen_two<__nv_bfloat16>(at[k][tile][i]);
        at[k][tile][i] = narrow_two<__half>({two.x * factor, two.y * factor});
      }
    }
    return __uint_as_float((exponent - 14u) << 23);
  }
};

/// s = the scores of the 32 keys of a tile, [16 keys][row tile]. As in score_tile() even and odd
/// steps have sums of their own.
template <class Shape>
__device__ void score_codes(const KvScaleParams& scales, const std::byte* keys,
                            const CodeRowFragments<Shape>& q, int lane,
                            float (&s)[2][Shape::kRowTiles][4]) {
  const uint32_t row = lane_row<Shape>(keys, lane);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float sum[2][Shape::kRowTiles][4] = {};
#pragma unroll
    for (int step = 0; step < Shape::kDim / 32; ++step) {
      uint32_t m[4];
      load_matrices(m, step_of_row<Shape>(row, part * kTileKeys, step));
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t low = m[2 * k], high = m[2 * k + 1];  // of keys g and g + 8
        const uint32_t a[4] = {widen_low(low), widen_low(high), widen_high(low), widen_high(high)};
#pragma unroll
        for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
          const uint32_t(&b)[2] = q.at[2 * step + k][tile];
          mma_m16n8k16<__half>(sum[k][tile], a, b[0], b[1]);
        }
      }
    }
    float2 scale{scales.k_scale, scales.k_scale};
    if (scales.has_token_scales) scale = scales_of<Shape>(keys, part * kTileKeys, lane);
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[part][tile][i] =
            (sum[0][tile][i] + sum[1][tile][i]) * (i < 2 ? scale.x : scale.y) * q.unit[tile][i % 2];
      }
    }
  }
}

/// What the weighted values of a warp count in, while it goes through its tiles of a segment: a
/// power of two, the largest so far of those at or below the scale of a value. So weights times
/// scales are below 2, and f16 has 11 bits of those that matter, however large or small values are.
/// One scale of all values is the unit itself.
class ValueUnit {
 public:
  /// Takes in the scales of a tile's values, that of value `lane`; earlier sums change to the new
  /// unit. Returns what scales are multiplied with.
  template <int kDim, int kRowTiles>
  __device__ float take(float scale, KeyTileSums<kDim, kRowTiles>& sums) {
    const uint32_t most = __reduce_max_sync(~0u, __float_as_uint(scale) & kExponent);
    const uint32_t wanted = min(most, kLargest);  // an infinite scale stays one, and NaN
    if (wanted > bits_) {
      const uint32_t steps = wanted - bits_;
      change(sums, steps < kOne ? __uint_as_float(kOne - steps) : 0.0f);
      bits_ = wanted;
    }
    return __uint_as_float(2 * kOne - bits_);
  }
  /// Ends a segment: sums become those of values.
  template <int kDim, int kRowTiles>
  __device__ void leave(const KvScaleParams& scales, KeyTileSums<kDim, kRowTiles>& sums) const {
    change(sums, scales.has_token_scales ? __uint_as_float(bits_) : scales.v_scale);
  }

 private:
  static constexpr uint32_t kExponent = 0x7f800000, kOne = 127u << 23;  // bits of floats
  static constexpr uint32_t kSmallest = 1u << 23, kLargest = 253u << 23;

  template <int kDim, int kRowTiles>
  static __device__ void change(KeyTileSums<kDim, kRowTiles>& sums, float factor) {
#pragma unroll
    for (float(&group)[kRowTiles][4] : sums.o) {
#pragma unroll
      for (float(&tile)[4] : group) {
#pragma unroll
        for (float& o : tile) o *= factor;
      }
    }
  }

  uint32_t bits_ = kSmallest;
};

/// Adds the weighted values of a tile; weights times scales are rounded to f16.
template <class Shape>
__device__ void add_code_values(const KvScaleParams& scales, const std::byte* values, int lane,
                                ValueUnit& unit, const float (&weights)[2][Shape::kRowTiles][4],
                                KeyTileSums<Shape::kDim, Shape::kRowTiles>& sums) {
  float2 scale[2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
  if (scales.has_token_scales) {
    const float factor =
        unit.take(reinterpret_cast<const float*>(values + Shape::kScalesAt)[lane], sums);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float2 two = scales_of<Shape>(values, part * kTileKeys, lane);
      scale[part] = {two.x * factor, two.y * factor};
    }
  }
  const uint32_t row = lane_row<Shape>(values, lane);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    uint32_t b[Shape::kRowTiles][2];
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
      const float(&w)[4] = weights[part][tile];
      const float2 s = scale[part];
      b[tile][0] = transpose_matrix(narrow_two<__half>({w[0] * s.x, w[1] * s.x}));
      b[tile][1] = transpose_matrix(narrow_two<__half>({w[2] * s.y, w[3] * s.y}));
    }
#pragma unroll
    for (int step = 0; step < Shape::kDim / 32; ++step) {
      uint32_t m[4];
      load_matrices_transposed(m, step_of_row<Shape>(row, part * kTileKeys, step));
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t low = __byte_perm(m[2 * k], 0, 0x3120);  // of keys 0 to 7
        const uint32_t high = __byte_perm(m[2 * k + 1], 0, 0x3120);
        const uint32_t a[4] = {widen_low(low), widen_high(low), widen_low(high), widen_high(high)};
#pragma unroll
        for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
          mma_m16n8k16<__half>(sums.o[2 * step + k][tile], a, b[tile][0], b[tile][1]);
        }
      }
    }
  }
}

/// Stores elements `first` and first + 1 of a row of o, as far as it has them.
template <class Params>
__device__ void store_two(const Params& p, void* row, int first, float low, float high) {
  const auto store = [&]<class T>(T* to) {
    if (first < p.head_dim) to[first] = narrow<T>(low);
    if (first + 1 < p.head_dim) to[first + 1] = narrow<T>(high);
  };
  if (p.is_bfloat16) {
    store(static_cast<__nv_bfloat16*>(row));
  } else {
    store(static_cast<__half*>(row));
  }
}

}  // namespace heddle::cuda::attention::decode
