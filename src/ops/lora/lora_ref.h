#pragma once

#include <cmath>
#include <span>

namespace heddle::ref {

/// Both halves of LoRA are sum_k u[k] * w[k]: over in_features for one rank, or over the rank for one output.
inline double lora_sum(std::span<const double> u, std::span<const double> w) {
  double sum = 0.0;
  for (size_t k = 0; k < u.size(); ++k) sum += u[k] * w[k];
  return sum;
}

/// The same sum in f32 in the order that the contract promises: what a target with fused multiply-add gives, bit for bit.
inline float lora_sum_in_order(std::span<const float> u, std::span<const float> w) {
  float sum = 0.0f;
  for (size_t k = 0; k < u.size(); ++k) sum = std::fma(u[k], w[k], sum);
  return sum;
}

}  // namespace heddle::ref
