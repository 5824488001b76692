#pragma once

// GELU's normal distribution in f32, for the kernels of all devices:
//
//   gelu(x) = x Phi(x) = max(x, 0) - a Q(a)   with a = |x| and Q(a) = Phi(-a)
//   Q(a)    = exp(-a^2 / 2) z (t0 + t1 z + ... + t9 z^9)   with z = 1 / (1 + a / 4)
//
// The polynomial was fitted to the least largest relative error, 2^-25.7 for a from 0 to 40;
// Q(14.5) is already 0 in f32. So Q is accurate to its smallest values, where 1 + erf(x / sqrt 2)
// cancels.

namespace heddle::gelu {

inline constexpr float kSlope = 0.25f;
inline constexpr float kBound = 40.0f;  // larger a count as this one

/// t0 to t9. A type, since device code takes no array of the host.
struct Tail {
  static constexpr int kDegree = 9;
  float t[kDegree + 1] = {0.099735655f, 0.09973525f,  0.09346273f, 0.08173498f,   0.05809804f,
                          0.06655621f,  -0.03695631f, 0.10109799f, -0.083964854f, 0.020500313f};
};

// The tanh form is x / (1 + exp(-u)) with
//
//   u = 2 sqrt(2 / pi) (x + 0.044715 x^3) = x (kLinear + kCubic x^2)
inline constexpr double kLinear = 1.5957691216057308;
inline constexpr double kCubic = 0.07135481627260025;

}  // namespace heddle::gelu
