#pragma once

#include <cmath>

namespace heddle::ref {

/// The definition, in double.
inline double silu_and_mul(double gate, double up) { return gate / (1.0 + std::exp(-gate)) * up; }

}  // namespace heddle::ref
