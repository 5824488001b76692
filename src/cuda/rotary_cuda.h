#pragma once

#include <cstdint>

#include "cuda/rotary.h"

namespace heddle::cuda {

struct CosSin {
  float cos, sin;
};

/// Cosine and sine of an angle in 2^-64 turns. In f32 and integers alone, some 35 instructions: for
/// tables and for a few angles a thread. Within 0.8 ulp of the exact values, as the CPU's double
/// precision gives them rounded, and 2 ulp for sines below 1e-7. The nearest quarter turn is taken
/// off exactly; of the rest, at most an eighth, the upper 24 bits (x, in quarter turns) go through
/// polynomials whose first terms are kept as sums of two floats, and the lower ones (low, radians)
/// through the derivative.
__device__ inline CosSin cos_sin(Turns angle) {
  const uint64_t quarter = (angle + (uint64_t{1} << 61)) >> 62;
  const auto rest = static_cast<int64_t>(angle - (quarter << 62));
  const int64_t head = (rest + (int64_t{1} << 37)) >> 38;
  const float x = static_cast<float>(static_cast<int32_t>(head)) * 0x1p-24f;
  const float low = static_cast<float>(static_cast<int32_t>((rest - (head << 38)) >> 6)) *
                    0x1.921fb6p-56f;  // pi / 2 * 2^-56
  const float z = x * x;
  // sin(pi / 2 x) = x (1.5707... + z s(z)) and cos(pi / 2 x) = 1 + z (-1.2337... + z c(z)): minimax
  // for |x| <= 1 / 2.
  float s = fmaf(0x1.4bc7e2p-13f, z, -0x1.32ca9cp-8f);
  s = fmaf(s, z, 0x1.466bbap-4f);
  s = fmaf(s, z, -0x1.4abbcep-1f);
  s = fmaf(s, z, -0x1.778956p-25f);
  float c = fmaf(-0x1.a1e7d2p-16f, z, 0x1.e1ec7p-11f);
  c = fmaf(c, z, -0x1.55d3c2p-6f);
  c = fmaf(c, z, 0x1.03c1fp-2f);
  c = fmaf(c, z, -0x1.37c6c6p-25f);
  const float sin_top = x * 0x1.921fb6p+0f, cos_top = fmaf(z, -0x1.3bd3ccp+0f, 1.0f);
  const float sin_rest = fmaf(s, x, fmaf(x, 0x1.921fb6p+0f, -sin_top));
  const float cos_rest = fmaf(c, z, fmaf(z, -0x1.3bd3ccp+0f, 1.0f - cos_top));
  const float sine = sin_top + fmaf(low, cos_top, sin_rest);
  const float cosine = cos_top + fmaf(-low, sin_top, cos_rest);

  const bool swap = (quarter & 1) != 0;
  const float cos = swap ? sine : cosine, sin = swap ? cosine : sine;
  return {((quarter + 1) & 2) != 0 ? -cos : cos, (quarter & 2) != 0 ? -sin : sin};
}

/// Of a pair at a position.
__device__ inline CosSin cos_sin_at(int64_t position, Turns frequency) {
  return cos_sin(static_cast<Turns>(position) * frequency);
}

/// Turns the pair (a, b). As on the CPU: the product with cos is rounded, the one with sin is fused
/// into the sum.
__device__ inline float2 rotate(float a, float b, CosSin turn) {
  return {fmaf(-b, turn.sin, a * turn.cos), fmaf(a, turn.sin, b * turn.cos)};
}

}  // namespace heddle::cuda
