#pragma once

#include <cmath>
#include <span>

namespace heddle::ref {

/// Both halves of LoRA are sum_k u[k] * w[k]: over in_features for one rank, or over the rank for
/// one output.
inline double lora_sum(std::span<const double> u, std::span<const double> w) {
  double sum = 0.0;
  for (size_t k = 0; k < u.size(); ++k) sum += u[k] * w[k];
  return sum;
}

/// The same sum in f32 in the order that the contract promises: what a target with fused
/// multiply-add gives, bit for bit.
inline float lora_sum_in_order(std::span<const float> u, std::span<const float> w) {
  float sum = 0.0f;
  for (size_t k = 0; k < u.size(); ++k) sum = std::fma(u[k], w[k], sum);
  return sum;
}

/// What one pair of a token adds to one output: the pair's factor, h = A x of its adapter, and the
/// output's row of B.
struct LoraPairTerm {
  double factor;
  std::span<const double> h, b;
};

/// One output of lora_apply with pairs.
inline double lora_pairs(double y, std::span<const LoraPairTerm> pairs) {
  for (const LoraPairTerm& pair : pairs) y += pair.factor * lora_sum(pair.h, pair.b);
  return y;
}

}  // namespace heddle::ref
