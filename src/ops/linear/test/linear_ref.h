#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "heddle/ops/linear.h"

// The definitions, weight by weight and without cleverness; tests only. Sums and products of scales
// and codes are exact in double, so the value rounded to float is the one that the formats define.

namespace heddle::ref {

class StoredBlock {
 public:
  explicit StoredBlock(const std::byte* bytes) : bytes_(bytes) {}
  [[nodiscard]] int u8(int64_t at) const { return static_cast<int>(bytes_[at]); }
  [[nodiscard]] int i8(int64_t at) const { return static_cast<int8_t>(bytes_[at]); }
  [[nodiscard]] double f16(int64_t at) const {
    uint16_t bits;
    std::memcpy(&bits, bytes_ + at, 2);
    return to_float(half{bits});
  }
  [[nodiscard]] int low(int64_t at) const { return u8(at) & 15; }
  [[nodiscard]] int high(int64_t at) const { return u8(at) >> 4; }
  /// Bits [first, first + n) of the byte at `at`.
  [[nodiscard]] int bits(int64_t at, int64_t first, int n) const {
    return u8(at) >> first & ((1 << n) - 1);
  }

 private:
  const std::byte* bytes_;
};

/// Scale (or minimum) j of the eight in the twelve bytes from `at` on of a Q4_K or Q5_K block.
inline int scale_k(const StoredBlock& b, int64_t j) {
  return j < 4 ? b.bits(4 + j, 0, 6) : b.low(8 + j) + 16 * b.bits(j, 6, 2);
}
inline int min_k(const StoredBlock& b, int64_t j) {
  return j < 4 ? b.bits(8 + j, 0, 6) : b.high(8 + j) + 16 * b.bits(4 + j, 6, 2);
}

/// Weight k of a block.
inline double block_value(WeightType type, const StoredBlock& b, int64_t k) {
  const auto nibble = [&](int64_t at, int64_t i, int64_t n) {
    return i < n ? b.low(at + i) : b.high(at + i - n);
  };
  switch (type) {
    case WeightType::kQ8_0: return b.f16(0) * b.i8(2 + k);
    case WeightType::kQ4_0: return b.f16(0) * (nibble(2, k, 16) - 8);
    case WeightType::kQ4_1: return b.f16(0) * nibble(4, k, 16) + b.f16(2);
    case WeightType::kQ5_0:
      return b.f16(0) * (nibble(6, k, 16) + 16 * b.bits(2 + k / 8, k % 8, 1) - 16);
    case WeightType::kQ5_1:
      return b.f16(0) * (nibble(8, k, 16) + 16 * b.bits(4 + k / 8, k % 8, 1)) + b.f16(2);
    case WeightType::kQ4K: {
      const int q = nibble(16 + 32 * (k / 64), k % 64, 32);
      return b.f16(0) * scale_k(b, k / 32) * q - b.f16(2) * min_k(b, k / 32);
    }
    case WeightType::kQ5K: {
      const int q = nibble(48 + 32 * (k / 64), k % 64, 32) + 16 * b.bits(16 + k % 32, k / 32, 1);
      return b.f16(0) * scale_k(b, k / 32) * q - b.f16(2) * min_k(b, k / 32);
    }
    case WeightType::kQ6K: {
      const int64_t half = k / 128, i = k % 128;
      const int q =
          nibble(64 * half, i, 64) + 16 * b.bits(128 + 32 * half + i % 32, 2 * (i / 32), 2);
      return b.f16(208) * b.i8(192 + k / 16) * (q - 32);
    }
    default: return NAN;
  }
}

/// Weight i of a stored row, or of several rows one after the other.
inline float weight(WeightType type, const std::byte* stored, int64_t i) {
  if (type == WeightType::kF32) {
    float value;
    std::memcpy(&value, stored + 4 * i, 4);
    return value;
  }
  if (type == WeightType::kF16 || type == WeightType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, stored + 2 * i, 2);
    return type == WeightType::kF16 ? to_float(half{bits}) : to_float(bfloat16{bits});
  }
  const int64_t block = block_size(type);
  const StoredBlock b(stored + i / block * int64_t(stored_bytes(type, block)));
  return static_cast<float>(block_value(type, b, i % block));
}

enum class MultiplyAdd { kFused, kRoundedTwice };

/// y[t][o] = sum_k w[o][k] x[t][k] in f32, k ascending; w [out_features, in_features], x
/// [num_tokens, in_features], compact.
inline std::vector<float> linear(const std::vector<float>& w, const std::vector<float>& x,
                                 int64_t out_features, int64_t in_features, MultiplyAdd kind) {
  const int64_t num_tokens = static_cast<int64_t>(x.size()) / in_features;
  std::vector<float> y(static_cast<size_t>(num_tokens * out_features));
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t o = 0; o < out_features; ++o) {
      float sum = 0.0f;
      for (int64_t k = 0; k < in_features; ++k) {
        const float a = w[size_t(o * in_features + k)], b = x[size_t(t * in_features + k)];
        if (kind == MultiplyAdd::kFused) {
          sum = std::fma(a, b, sum);
        } else {
          const float product = a * b;
          sum += product;
        }
      }
      y[size_t(t * out_features + o)] = sum;
    }
  }
  return y;
}

}  // namespace heddle::ref
