#pragma once

#include <cmath>

namespace heddle::ref {

/// The definitions, in double.
inline double scale(double x, double factor) { return x * factor; }
inline double soft_cap(double x, double cap) { return cap * std::tanh(x / cap); }

}  // namespace heddle::ref
