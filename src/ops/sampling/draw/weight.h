#pragma once

#include <bit>
#include <cstdint>
#include <limits>

// What CPU and GPU share of `sample`: the weight of a logit, as a number of units, and what is
// computed of sums of units. A sum of whole numbers does not depend on its order, so both give the
// same bits however they cut a row.
//
//   weight  w = 2^(c (logit - largest)), c = log2(e) / temperature: an f32, see Exponent
//   units   w 2^b, rounded to a whole number, ties to even; b = fraction_bits(vocab_size)
//
// Functions are forced inline, so that code which Highway compiles once per instruction set may
// call them.

namespace heddle::sampling {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Weights are multiples of 2^-fraction_bits: 2^-44, or fewer bits where the sum of a row would not
/// fit 62.
[[nodiscard, gnu::always_inline]] constexpr int fraction_bits(int64_t vocab_size) {
  constexpr int kMost = 44, kSumBits = 62;
  // Not std::bit_width: nvcc 13.0 makes 0 of it.
  int vocab_bits = kSumBits - kMost;
  while (static_cast<uint64_t>(vocab_size) >> vocab_bits != 0) ++vocab_bits;
  return kSumBits - vocab_bits;
}

/// A number whose sum with a weight ends at the bit of one unit: the low bits of weight + magic are
/// the units.
[[nodiscard, gnu::always_inline]] constexpr double units_magic(int64_t vocab_size) {
  constexpr int kMantissaBits = 52;
  return 1.5 * static_cast<double>(uint64_t{1} << (kMantissaBits - fraction_bits(vocab_size)));
}
[[nodiscard, gnu::always_inline]] constexpr uint64_t units_of(float weight, double magic) {
  return std::bit_cast<uint64_t>(double{weight} + magic) - std::bit_cast<uint64_t>(magic);
}

/// c of the weights. Temperatures are bounded, so that 0 times c stays 0 and -infinity what it is.
[[nodiscard, gnu::always_inline]] constexpr float scale_of(float temperature) {
  constexpr float kLeast = 1e-30f, kMost = 1e30f;
  constexpr double kLog2E = 1.4426950408889634;
  const float bounded = temperature < kLeast ? kLeast : (temperature < kMost ? temperature : kMost);
  return static_cast<float>(kLog2E / double{bounded});
}

/// 2^y = 2^n p(y - n) for y in [-60, 0], where n is y rounded to a whole number; y below -60 counts
/// as that, which is no unit. p(f) = 1 + f (a0 + f (a1 + ...)), each step a fused multiply-add, is
/// within 1.1e-7 of 2^f.
struct Exponent {
  static constexpr float kLeast = -60.0f;
  /// y + kMagic ends at the bit of 1.
  static constexpr float kMagic = 12582912.0f;
  static constexpr int kDegree = 5;
  float a[kDegree] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f,
                      0x1.5bba14p-10f};
};

/// The weight of a logit that is no NaN; largest >= logit. fma(a, b, c): a b + c, rounded once.
template <class Fma>
[[nodiscard, gnu::always_inline]] constexpr float weight_of(float logit, float largest, float scale,
                                                            const Fma& fma) {
  constexpr Exponent kExponent;
  const float below = logit == largest ? 0.0f : logit - largest;
  const float exact = below * scale;
  const float y = exact > Exponent::kLeast ? exact : Exponent::kLeast;
  const float rounded = y + Exponent::kMagic;
  const float f = y - (rounded - Exponent::kMagic);
  float p = kExponent.a[Exponent::kDegree - 1];
  for (int i = Exponent::kDegree - 2; i >= 0; --i) p = fma(p, f, kExponent.a[i]);
  p = fma(p, f, 1.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) +
                              (std::bit_cast<uint32_t>(rounded) << 23));
}

/// The natural logarithm of a normal number above 0, within a few units in the last place:
/// 2 artanh((m - 1) / (m + 1)) + e log(2) for x = m 2^e, m in [0.7, 1.5), products and sums rounded
/// one by one.
[[nodiscard, gnu::always_inline]] constexpr double log_of(double x) {
  constexpr double kLog2 = 0.6931471805599453;
  constexpr int kTerms = 11;
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1023} << 52);
  if (m >= 1.5) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), square = s * s;
  double series = 0.0;
  for (int i = kTerms - 1; i >= 0; --i) series = series * square + 1.0 / (2 * i + 1);
  return exponent * kLog2 + 2.0 * s * series;
}

/// min_p keeps logits of at least largest + this, for min_p in (0, 1]: temperature log(min_p).
[[nodiscard, gnu::always_inline]] constexpr double min_p_offset(float temperature, float min_p) {
  constexpr float kMost = 1e30f;
  const double bounded = temperature < kMost ? double{temperature} : double{kMost};
  constexpr float kLeastNormal = 0x1p-126f;
  const double p = min_p > kLeastNormal ? double{min_p} : double{kLeastNormal};
  return bounded * log_of(p);
}

/// log softmax of a logit, of the sum of a row's units with temperature 1. largest > -infinity.
/// logit - largest is exact in f64, and the sum at least that of weight 1.
[[nodiscard, gnu::always_inline]] constexpr float logprob_of(float logit, float largest,
                                                             double log_sum) {
  if (logit != logit) return -kInfinity;
  const double below = logit == largest ? 0.0 : double{logit} - double{largest};
  return static_cast<float>(below - log_sum);
}
/// log_sum of it.
[[nodiscard, gnu::always_inline]] constexpr double log_sum_of(uint64_t units, int64_t vocab_size) {
  const auto unit = static_cast<double>(uint64_t{1} << fraction_bits(vocab_size));
  return log_of(static_cast<double>(units) / unit);
}

/// The bits of a logit, such that they ascend with its value: -0 equals 0, and NaN is none.
[[nodiscard, gnu::always_inline]] constexpr uint32_t ascending_bits(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace heddle::sampling
