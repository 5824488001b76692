#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/linear/test/linear_ref.h"

// LinearActivations::kInt8 as linear.h defines it, number by number; tests only.

namespace heddle::ref {

/// A block of 32 of x.
struct Int8Block {
  float scale = 0.0f;
  int codes[32] = {};

  explicit Int8Block(const float* x) {
    float most = 0.0f;
    bool is_finite = true;
    for (int i = 0; i < 32; ++i) {
      is_finite &= std::isfinite(x[i]);
      most = std::max(most, std::abs(x[i]));
    }
    if (!is_finite) {
      scale = NAN;
      return;
    }
    scale = most / 127.0f;
    if (scale < 0x1p-126f) {
      scale = 0.0f;
      return;
    }
    const float inverse = 1.0f / scale;
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  }
};

/// Weight k of a block as scale (code) + minimum: the code less its offset.
struct ScaledCode {
  float scale, minimum;
  int code;
};

inline ScaledCode scaled_code(WeightType type, const StoredBlock& b, int64_t k) {
  // Two weights of one sub-block with codes that differ by one would tell the scale; here they are
  // read as block_value reads them.
  const double value = block_value(type, b, k);
  const auto f = [](double v) { return static_cast<float>(v); };
  switch (type) {
    case WeightType::kQ8_0: return {f(b.f16(0)), 0.0f, b.i8(2 + k)};
    case WeightType::kQ4_1:
    case WeightType::kQ5_1: {
      const double d = b.f16(0), m = b.f16(2);
      return {f(d), f(m), static_cast<int>(std::lround(d == 0 ? 0.0 : (value - m) / d))};
    }
    case WeightType::kQ4K:
    case WeightType::kQ5K: {
      const double d = b.f16(0) * scale_k(b, k / 32), m = -b.f16(2) * min_k(b, k / 32);
      return {f(d), f(m), static_cast<int>(std::lround(d == 0 ? 0.0 : (value - m) / d))};
    }
    case WeightType::kQ6K: {
      const double d = b.f16(208) * b.i8(192 + k / 16);
      return {f(d), 0.0f, static_cast<int>(std::lround(d == 0 ? 0.0 : value / d))};
    }
    default: {  // Q4_0, Q5_0
      const double d = b.f16(0);
      return {f(d), 0.0f, static_cast<int>(std::lround(d == 0 ? 0.0 : value / d))};
    }
  }
}

inline float multiply_add(float a, float b, float c, MultiplyAdd kind) {
  if (kind == MultiplyAdd::kFused) return std::fma(a, b, c);
  const float product = a * b;
  return product + c;
}

/// y[t][o] of stored weights [out_features, in_features] in a block format.
inline std::vector<float> int8_linear(WeightType type, const std::vector<std::byte>& stored,
                                      const std::vector<float>& x, int64_t out_features,
                                      int64_t in_features, MultiplyAdd kind) {
  const int64_t num_tokens = static_cast<int64_t>(x.size()) / in_features;
  const int64_t size = block_size(type), bytes = int64_t(stored_bytes(type, size));
  const int64_t sub = type == WeightType::kQ6K ? 16 : 32;
  std::vector<float> y(static_cast<size_t>(num_tokens * out_features));
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t o = 0; o < out_features; ++o) {
      float sum = 0.0f;
      for (int64_t k = 0; k < in_features; k += 32) {
        const Int8Block block(&x[size_t(t * in_features + k)]);
        int64_t sum_of_x = 0;
        ScaledCode w{};
        for (int64_t first = 0; first < 32; first += sub) {
          int64_t exact = 0;
          for (int64_t i = first; i < first + sub; ++i) {
            const int64_t at = o * in_features + k + i;
            w = scaled_code(type, StoredBlock(stored.data() + at / size * bytes), at % size);
            exact += int64_t{w.code} * block.codes[i];
            sum_of_x += block.codes[i];
          }
          sum = multiply_add(static_cast<float>(exact) * block.scale, w.scale, sum, kind);
        }
        if (type == WeightType::kQ4_1 || type == WeightType::kQ5_1 || type == WeightType::kQ4K ||
            type == WeightType::kQ5K) {
          sum = multiply_add(w.minimum, static_cast<float>(sum_of_x) * block.scale, sum, kind);
        }
      }
      y[size_t(t * out_features + o)] = sum;
    }
  }
  return y;
}

}  // namespace heddle::ref
