#pragma once

// A head of a key or value on its way into a cache of f8e4m3, by a warp: its scale and its codes,
// with the bits of the CPU's.

#include <cmath>

#include "cuda/convert_cuda.h"

#include "ops/attention/kv_append/new_token_cuda.h"

namespace heddle::cuda::attention {

/// What becomes the code: 0 where the scale is 0, NaN where x is not finite.
__device__ inline float scaled_by(float x, float scale) {
  if (!(fabsf(x) < INFINITY)) return NAN;
  return scale == 0.0f ? 0.0f : __fdiv_rn(x, scale);
}

/// Stores head `head` of the token's key or value. element_at(d): element d as f32. All lanes call.
template <class ElementAt>
__device__ void store_codes(const PagedKvParams& kv, const KvScaleParams& scales,
                            const NewToken& token, int head, bool is_value, int head_dim,
                            const ElementAt& element_at) {
  constexpr int kKept = 8;  // elements of a lane, 32 apart, that stay in registers
  const int lane = static_cast<int>(threadIdx.x % 32);
  float x[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int d = lane + 32 * i;
    x[i] = d < head_dim ? element_at(d) : 0.0f;
  }
  float scale = is_value ? scales.v_scale : scales.k_scale;
  if (scales.has_token_scales) {
    float most = 0.0f;
#pragma unroll
    for (const float v : x) most = fmaxf(most, fabsf(v));
    for (int d = lane + 32 * kKept; d < head_dim; d += 32) {
      most = fmaxf(most, fabsf(element_at(d)));
    }
    // Floats that are not negative are ordered as their bits are.
    most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
    scale = __fdiv_rn(most, 448.0f);
    std::byte* const to = scale_address(scales, token.page, head, token.slot);
    if (lane == 0) {
      *reinterpret_cast<float*>(to + (is_value ? scales.value_distance : 0)) = scale;
    }
  }
  std::byte* const row = token.key + head * kv.head_step + (is_value ? kv.value_distance : 0);
#pragma unroll
  for (int i = 0; i < kKept; i += 2) {
    const int d = lane + 32 * i;
    const uint16_t two = narrow_two_e4m3(scaled_by(x[i], scale), scaled_by(x[i + 1], scale));
    if (d < head_dim) row[d] = static_cast<std::byte>(two & 0xff);
    if (d + 32 < head_dim) row[d + 32] = static_cast<std::byte>(two >> 8);
  }
  for (int d = lane + 32 * kKept; d < head_dim; d += 32) {
    const uint16_t two = narrow_two_e4m3(scaled_by(element_at(d), scale), 0.0f);
    row[d] = static_cast<std::byte>(two & 0xff);
  }
}

}  // namespace heddle::cuda::attention
