#pragma once

#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/linear/unpack/unpack_cuda.h"

// Codes of packed blocks as operands of mma_m16n8k16, exact in f16 and in bf16: |code| <= 128.
//
// Of a group of 16 outputs lane (g, q) has outputs 2 g and 2 g + 1, as rows g and g + 8 of A. Which
// feature is at which place of a product does not matter, as long as x has the same order:
//   up to 6 bits   a word holds features 0 ... 7 of 8; its halves' bits 4 p ... are the codes of
//                  features p and p + 4, so these are neighbours, and x is put in the order
//                  0 4 1 5 2 6 3 7;
//   8 bits         16 bytes are the codes of a feature; a transposing load of matrices leaves each
//                  lane two neighbouring features of its two outputs.

namespace heddle::cuda::linear_site {

using linear::rotate_right;

/// The exponent that makes numbers of codes in the low bits of both halves: 1024 + code as f16, 128
/// + code as bf16.
template <class T>
inline constexpr uint32_t kCodeExponent = 0x64006400u;
template <>
inline constexpr uint32_t kCodeExponent<__nv_bfloat16> = 0x43004300u;

/// (word & mask) | bits, in one instruction.
__device__ inline uint32_t masked(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

/// T(code - offset) of such codes under their exponent.
template <class T>
__device__ uint32_t to_values(uint32_t codes, int offset);
template <>
__device__ inline uint32_t to_values<__half>(uint32_t codes, int offset) {
  const uint32_t bias = kCodeExponent<__half> + static_cast<uint32_t>(offset) * 0x00010001u;
  const __half2 v =
      __hsub2(*reinterpret_cast<const __half2*>(&codes), *reinterpret_cast<const __half2*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&v);
}
template <>
__device__ inline uint32_t to_values<__nv_bfloat16>(uint32_t codes, int offset) {
  const uint32_t bias = kCodeExponent<__nv_bfloat16> + static_cast<uint32_t>(offset) * 0x00010001u;
  const __nv_bfloat162 v = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&codes),
                                   *reinterpret_cast<const __nv_bfloat162*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&v);
}

/// T of the signed bytes in the low bytes of both halves.
template <class T>
__device__ uint32_t signed_bytes_to_values(uint32_t two);
template <>
__device__ inline uint32_t signed_bytes_to_values<__half>(uint32_t two) {
  return to_values<__half>(masked(two ^ 0x00800080u, 0x00ff00ffu, kCodeExponent<__half>), 128);
}
template <>
__device__ inline uint32_t signed_bytes_to_values<__nv_bfloat16>(uint32_t two) {
  // 128 + the low seven bits, less 128, or less 256 where the sign is set.
  const uint32_t low = masked(two, 0x007f007fu, kCodeExponent<__nv_bfloat16>);
  const uint32_t sign = masked(two, 0x00800080u, kCodeExponent<__nv_bfloat16>);
  const __nv_bfloat162 v = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&low),
                                   *reinterpret_cast<const __nv_bfloat162*>(&sign));
  return *reinterpret_cast<const uint32_t*>(&v);
}

/// d times byte kByte of a word, exact for d of 15 bits: 2^23 + byte less 2^23, without a
/// conversion, which takes longer.
template <int kByte>
__device__ float times_byte(float d, uint32_t word) {
  const float byte = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + kByte));
  return __fmaf_rn(byte, d, -8388608.0f * d);
}
__device__ inline float signed_byte_to_float(uint32_t byte) {
  return __uint_as_float(0x4b000000u | (byte ^ 0x80u)) - (8388608.0f + 128.0f);
}

/// Eight numbers of T, added in f32.
template <class T>
__device__ float sum_of_8(const uint4& v) {
  const float2 a = widen_two<T>(v.x), b = widen_two<T>(v.y), c = widen_two<T>(v.z),
               d = widen_two<T>(v.w);
  return ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
}

/// v as two bf16, whole if it has up to 17 bits.
__device__ inline uint32_t split_in_two(float v) {
  const float rest = v - __uint_as_float(narrow_two<__nv_bfloat16>({0, v}) & 0xffff0000u);
  return narrow_two<__nv_bfloat16>({v, rest});
}
/// v as three bf16, the last one twice.
__device__ inline uint2 split_in_three(float v) {
  const uint32_t two = split_in_two(v);
  const float rest = v - __uint_as_float(two << 16) - __uint_as_float(two & 0xffff0000u);
  return {two, narrow_two<__nv_bfloat16>({rest, rest})};
}

/// What a lane has of 32 features of a group, which is a step.
template <WeightType kType, class T>
struct WeightFragment {
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr PackedLayout kLayout{kType};
  /// Products whose sums have a scale each: of 16 features, or two of 16 together.
  static constexpr int kScales = kFormat.sub_block_size == 16 ? 2 : 1;
  /// Steps of a block, and how far apart their codes and scales are.
  static constexpr int kSteps = kFormat.block_size / 32;
  static constexpr int kCodeBytes =
      kSteps == 1 ? kLayout.block_bytes : 32 / kLayout.chunk_size * kLayout.chunk_bytes;
  static constexpr int kScaleBytes =
      kSteps == 1 ? kLayout.block_bytes : kScales * PackedLayout::kGroup;

  /// As they lie in shared memory.
  struct Words {
    static constexpr int kPlanes = kFormat.code_bits < 6 ? 1 : 2;
    uint2 low[kPlanes], high[kPlanes];
    uint32_t scale[kScales];
  };

  uint32_t a[2][4];         // [product of 16 features]
  float scale[kScales][2];  // [product, or 0 for both][output]

  /// Where a lane finds the codes and the scales of the first step of a stage.
  static const __device__ std::byte* codes_of(const std::byte* stage, int g, int q) {
    stage += kLayout.codes;
    if constexpr (kFormat.code_bits == 8) return stage + (4 * g + q) * PackedLayout::kGroup;
    if constexpr (kFormat.code_bits == 6) return stage + q / 2 * 64 + 8 * g;
    return stage + q * 64 + 8 * g;
  }
  static const __device__ std::byte* scales_of(const std::byte* stage, int g) {
    constexpr bool kAreD = kFormat.sub_scales == SubScales::kNone;
    return stage + (kAreD ? 4 * g : kLayout.sub_scales + 2 * g);
  }
  /// The words of a step at such places.
  static __device__ Words fetch(const std::byte* codes, const std::byte* scales, int q) {
    Words words;
    if constexpr (kFormat.sub_scales == SubScales::kNone) {
      words.scale[0] = word_at(scales);
    } else {
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        words.scale[i] = two_bytes_at(scales + i * PackedLayout::kGroup);
      }
    }
    if constexpr (kFormat.code_bits == 8) {
      uint32_t of_8[4];
      load_matrices_transposed(of_8, shared_address(codes));
      words.low[0] = {of_8[0], of_8[1]}, words.low[1] = {of_8[2], of_8[3]};
    } else if constexpr (kFormat.code_bits == 6) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::byte* const chunk = codes + i * kLayout.chunk_bytes;
        words.low[i] = two_words_at(chunk);
        words.high[i] = two_words_at(chunk + 128 - q / 2 * 64);
      }
    } else {
      words.low[0] = two_words_at(codes);
      if constexpr (kFormat.code_bits == 5) words.high[0] = two_words_at(codes + 256 - q * 64);
    }
    return words;
  }
  /// Of the two outputs, of the block that begins at `block`.
  static __device__ float2 d_of(const std::byte* block, int g) {
    return widen_two<__half>(word_at(block + 4 * g));
  }

  /// d is that of the block, in formats that have scales as well.
  __device__ void unpack(const Words& words, const float2& d, int q) {
    unpack_scales(words, d);
    if constexpr (kFormat.code_bits == 8) {
      unpack_bytes(words);
    } else if constexpr (kFormat.code_bits == 6) {
      unpack_6_bits(words, q);
    } else {
      unpack_4_or_5_bits(words, q);
    }
  }

  /// The minima of the two outputs for features [32 step, 32 step + 32) after a block's begin.
  static __device__ float2 minima(const std::byte* block, int step, int g) {
    constexpr bool kAreScaled = kFormat.sub_scales == SubScales::kUnsigned6;
    if constexpr (!kAreScaled) block += step * kLayout.block_bytes;
    const float2 m = widen_two<__half>(word_at(block + kLayout.mins + 4 * g));
    if constexpr (!kAreScaled) return m;
    const uint32_t n = two_bytes_at(block + kLayout.sub_mins + step * PackedLayout::kGroup + 2 * g);
    return {times_byte<0>(-m.x, n), times_byte<1>(-m.y, n)};
  }

 private:
  static __device__ uint32_t word_at(const std::byte* p) {
    return *reinterpret_cast<const uint32_t*>(p);
  }
  static __device__ uint2 two_words_at(const std::byte* p) {
    return *reinterpret_cast<const uint2*>(p);
  }
  static __device__ uint32_t two_bytes_at(const std::byte* p) {
    return *reinterpret_cast<const uint16_t*>(p);
  }

  __device__ void unpack_scales(const Words& words, const float2& d) {
    if constexpr (kFormat.sub_scales == SubScales::kNone) {
      const float2 of_step = widen_two<__half>(words.scale[0]);
      scale[0][0] = of_step.x, scale[0][1] = of_step.y;
    } else if constexpr (kFormat.sub_scales == SubScales::kUnsigned6) {
      scale[0][0] = times_byte<0>(d.x, words.scale[0]);
      scale[0][1] = times_byte<1>(d.y, words.scale[0]);
    } else {
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        scale[i][0] = d.x * signed_byte_to_float(words.scale[i] & 255);
        scale[i][1] = d.y * signed_byte_to_float(words.scale[i] >> 8);
      }
    }
  }

  /// The codes of features p and p + 4 of 8: `low` has four bits of each, `high` the others at bits
  /// 4 and 20.
  static __device__ uint32_t joined(uint32_t low, uint32_t high) {
    constexpr uint32_t kHighMask = kFormat.code_bits == 6 ? 0x00300030u : 0x00100010u;
    uint32_t codes = masked(low, 0x000f000fu, kCodeExponent<T>);
    if constexpr (kFormat.code_bits > 4) codes = masked(high, kHighMask, codes);
    return to_values<T>(codes, kFormat.code_offset);
  }

  /// Lane q has the features 8 q + [0, 8).
  __device__ void unpack_4_or_5_bits(const Words& words, int q) {
    const uint2 low = words.low[0];
    uint2 high{0, 0};
    if constexpr (kFormat.code_bits == 5) {
      high.x = rotate_right(words.high[0].x, 2 * q), high.y = rotate_right(words.high[0].y, 2 * q);
    }
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int by = p / 2 * 8 + p % 2;
      a[p / 2][p % 2 * 2] = joined(low.x >> (4 * p), high.x >> by);
      a[p / 2][p % 2 * 2 + 1] = joined(low.y >> (4 * p), high.y >> by);
    }
  }

  /// Of each 16 features lane q has four: 8 (q / 2) + 2 (q % 2) + {0, 4, 1, 5}.
  __device__ void unpack_6_bits(const Words& words, int q) {
    const int run = q / 2, by = q % 2 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint2 low = words.low[i], high = words.high[i];
      low.x >>= by, low.y >>= by;
      high.x = rotate_right(high.x, 4 * run + by), high.y = rotate_right(high.y, 4 * run + by);
      a[i][0] = joined(low.x, high.x), a[i][1] = joined(low.y, high.y);
      a[i][2] = joined(low.x >> 4, high.x >> 2), a[i][3] = joined(low.y >> 4, high.y >> 2);
    }
  }

  /// Lane q has the features 2 q and 2 q + 1 of each 8.
  __device__ void unpack_bytes(const Words& words) {
    const uint32_t of_8[4] = {words.low[0].x, words.low[0].y, words.low[1].x, words.low[1].y};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      a[p / 2][p % 2 * 2] = signed_bytes_to_values<T>(of_8[p]);
      a[p / 2][p % 2 * 2 + 1] = signed_bytes_to_values<T>(of_8[p] >> 8);
    }
  }
};

}  // namespace heddle::cuda::linear_site
