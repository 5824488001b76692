#pragma once

#include <cmath>
#include <numbers>

#include "heddle/ops/activation.h"

namespace heddle::ref {

/// -u, where the tanh form is gate / (1 + exp(-u)).
inline double gelu_tanh_exponent(double gate) {
  return -2.0 * std::sqrt(2.0 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
}

/// The definitions, in double; erfc and exp, so that a far negative gate is no difference of nearly
/// equal numbers.
inline double gelu_and_mul(GeluForm form, double gate, double up) {
  if (form == GeluForm::kErf) return gate * 0.5 * std::erfc(-gate / std::numbers::sqrt2) * up;
  return gate / (1.0 + std::exp(gelu_tanh_exponent(gate))) * up;
}

}  // namespace heddle::ref
