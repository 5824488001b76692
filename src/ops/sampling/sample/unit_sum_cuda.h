#pragma once

#include <cstdint>

#include "ops/sampling/draw/weight.h"
#include "ops/sampling/sample/unroll_cuda.h"

namespace heddle::cuda::sampling {

/// Adds up units_of(weight_of(logit)) of logits, with f32 and integers alone: conversions to f64
/// take longer than all the rest. Two sums round a weight w to whole numbers, ties to even, as
/// weight.h does at once:
///
///   w 2^b = high 2^(b - 22) + low,  high = round(w 2^22),  low = round((w - high 2^-22) 2^b)
///
/// w - high 2^-22 is exact, and at most 2^-23. NaN has no unit. The largest logit must be finite.
class UnitSum {
 public:
  __host__ __device__ UnitSum(float largest, float scale, int64_t vocab_size)
      : largest_(largest),
        scale_(scale),
        units_(static_cast<float>(uint64_t{1} << heddle::sampling::fraction_bits(vocab_size))),
        high_units_(uint32_t{1} << (heddle::sampling::fraction_bits(vocab_size) - kHighBits)) {}

  __host__ __device__ void add(const float4& v) {
    uint32_t high = 0, low = 0;
    add(v.x, high, low);
    add(v.y, high, low);
    add(v.z, high, low);
    add(v.w, high, low);
    total_ += uint64_t{high - 4 * kHighMagicBits} * high_units_;
    total_ += static_cast<uint64_t>(int64_t{static_cast<int32_t>(low - 4 * kLowMagicBits)});
  }
  __host__ __device__ void add(float logit) {
    uint32_t high = 0, low = 0;
    add(logit, high, low);
    total_ += uint64_t{high - kHighMagicBits} * high_units_;
    total_ += static_cast<uint64_t>(int64_t{static_cast<int32_t>(low - kLowMagicBits)});
  }
  [[nodiscard]] __host__ __device__ uint64_t total() const { return total_; }

 private:
  static constexpr int kHighBits = 22;
  /// A number added to these ends at the bit of 1: one that is not negative, one of either sign.
  static constexpr float kHighMagic = 0x1p23f, kLowMagic = 0x1.8p23f;
  static constexpr uint32_t kHighMagicBits = 0x4b000000u, kLowMagicBits = 0x4b400000u;

  /// weight_of, whose comparisons fmaxf has: NaN and -infinity are -60.
  [[nodiscard]] __host__ __device__ float weight_of(float logit) const {
    using heddle::sampling::Exponent;
    constexpr Exponent kExponent;
    const float y = fmaxf((logit - largest_) * scale_, Exponent::kLeast);
    const float rounded = y + Exponent::kMagic;
    const float f = y - (rounded - Exponent::kMagic);
    float p = kExponent.a[Exponent::kDegree - 1];
    HEDDLE_UNROLL
    for (int i = Exponent::kDegree - 2; i >= 0; --i) p = fmaf(p, f, kExponent.a[i]);
    p = fmaf(p, f, 1.0f);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p) +
                                (std::bit_cast<uint32_t>(rounded) << 23));
  }
  __host__ __device__ void add(float logit, uint32_t& high, uint32_t& low) const {
    constexpr float kHighUnits = 0x1p22f, kHighUnit = 0x1p-22f;
    const float w = weight_of(logit);
    const float with_magic = fmaf(w, kHighUnits, kHighMagic);
    const float rest = fmaf(with_magic - kHighMagic, -kHighUnit, w);
    high += std::bit_cast<uint32_t>(with_magic);
    low += std::bit_cast<uint32_t>(fmaf(rest, units_, kLowMagic));
  }

  float largest_, scale_, units_;
  uint32_t high_units_;
  uint64_t total_ = 0;
};

}  // namespace heddle::cuda::sampling
