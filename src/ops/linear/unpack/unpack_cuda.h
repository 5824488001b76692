#pragma once

#include <cstdint>

#include "cuda/convert_cuda.h"

#include "ops/linear/format/packed_layout.h"

namespace heddle::cuda::linear {

inline constexpr int kUnpacked = 8;  // weights at once

__device__ inline uint32_t rotate_right(uint32_t word, int bits) {
  return __funnelshift_r(word, word, static_cast<uint32_t>(bits));
}

/// One output of a group of a packed weight.
template <WeightType kType>
struct PackedOutput {
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr PackedLayout kLayout{kType};

  const std::byte* group;
  int lane;

  /// weights [k, k + num) of it, exact as block_values() has them; k a multiple of 8, num up to 8
  /// and 8 in quantised formats.
  __device__ void unpack(int64_t k, int num, float (&weights)[kUnpacked]) const {
    if constexpr (is_dense(kType)) {
#pragma unroll
      for (int i = 0; i < kUnpacked; ++i) weights[i] = i < num ? dense_at(k + i) : 0.0f;
    } else {
      const std::byte* const block = group + k / kFormat.block_size * kLayout.block_bytes;
      const auto first = static_cast<int>(k % kFormat.block_size);
      const float2 scales = scale_and_min(block, first / kFormat.sub_block_size);
      int codes[kUnpacked];
      load_codes(block + kLayout.codes, first, codes);
#pragma unroll
      for (int i = 0; i < kUnpacked; ++i) {
        const float product = __fmul_rn(scales.x, static_cast<float>(codes[i]));
        weights[i] = kFormat.has_min ? __fadd_rn(product, scales.y) : product;
      }
    }
  }

 private:
  [[nodiscard]] __device__ float dense_at(int64_t k) const {
    const std::byte* const at = group + (k * PackedLayout::kGroup + lane) * kFormat.stored_bytes;
    if constexpr (kType == WeightType::kF32) {
      return *reinterpret_cast<const float*>(at);
    } else if constexpr (kType == WeightType::kF16) {
      return widen(*reinterpret_cast<const __half*>(at));
    } else {
      return widen(*reinterpret_cast<const __nv_bfloat16*>(at));
    }
  }
  [[nodiscard]] __device__ float half_at(const std::byte* of_group) const {
    return widen(reinterpret_cast<const __half*>(of_group)[lane]);
  }
  [[nodiscard]] __device__ float byte_at(const std::byte* of_group) const {
    return static_cast<float>(reinterpret_cast<const uint8_t*>(of_group)[lane]);
  }
  [[nodiscard]] __device__ float2 scale_and_min(const std::byte* block, int sub) const {
    const float d = half_at(block);
    const float m = kFormat.has_min ? half_at(block + kLayout.mins) : 0.0f;
    const int at = sub * PackedLayout::kGroup;
    if constexpr (kFormat.sub_scales == SubScales::kUnsigned6) {
      return {__fmul_rn(d, byte_at(block + kLayout.sub_scales + at)),
              -__fmul_rn(m, byte_at(block + kLayout.sub_mins + at))};
    } else if constexpr (kFormat.sub_scales == SubScales::kSigned8) {
      const auto* const scales = reinterpret_cast<const int8_t*>(block + kLayout.sub_scales + at);
      return {__fmul_rn(d, static_cast<float>(scales[lane])), m};
    } else {
      return {d, m};
    }
  }
  __device__ void load_codes(const std::byte* codes, int first, int (&to)[kUnpacked]) const {
    if constexpr (kFormat.code_bits == 8) {
      const auto* const bytes = reinterpret_cast<const int8_t*>(codes) + lane;
#pragma unroll
      for (int i = 0; i < kUnpacked; ++i) to[i] = bytes[(first + i) * PackedLayout::kGroup];
    } else {
      constexpr int kHighBits = kFormat.code_bits - 4, kWords = kLayout.chunk_size / kUnpacked;
      constexpr int kWordsBytes = PackedLayout::kGroup * 4;
      const std::byte* const chunk = codes + first / kLayout.chunk_size * kLayout.chunk_bytes;
      const int run = first % kLayout.chunk_size / kUnpacked;
      const auto word = [&](int index) {
        return reinterpret_cast<const uint32_t*>(chunk + index * kWordsBytes)[lane];
      };
      const uint32_t low = word(run);
      const uint32_t high =
          kHighBits > 0 ? rotate_right(word(kHighBits > 0 ? kWords : 0), 2 * run * kHighBits) : 0;
#pragma unroll
      for (int i = 0; i < kUnpacked; ++i) {
        uint32_t code = (low >> (4 * i)) & 15u;
        if constexpr (kHighBits > 0) {
          code |= ((high >> high_bits_position(i, kHighBits)) & ((1u << kHighBits) - 1)) << 4;
        }
        to[i] = static_cast<int>(code) - kFormat.code_offset;
      }
    }
  }
};

/// Calls f.template operator()<kType>() for a type that is known when the kernel runs.
template <class F>
__device__ void with_weight_type(WeightType type, F&& f) {
  switch (type) {
    case WeightType::kF32: return f.template operator()<WeightType::kF32>();
    case WeightType::kF16: return f.template operator()<WeightType::kF16>();
    case WeightType::kBF16: return f.template operator()<WeightType::kBF16>();
    case WeightType::kQ8_0: return f.template operator()<WeightType::kQ8_0>();
    case WeightType::kQ4_0: return f.template operator()<WeightType::kQ4_0>();
    case WeightType::kQ4_1: return f.template operator()<WeightType::kQ4_1>();
    case WeightType::kQ5_0: return f.template operator()<WeightType::kQ5_0>();
    case WeightType::kQ5_1: return f.template operator()<WeightType::kQ5_1>();
    case WeightType::kQ4K: return f.template operator()<WeightType::kQ4K>();
    case WeightType::kQ5K: return f.template operator()<WeightType::kQ5K>();
    case WeightType::kQ6K: return f.template operator()<WeightType::kQ6K>();
  }
}

}  // namespace heddle::cuda::linear
