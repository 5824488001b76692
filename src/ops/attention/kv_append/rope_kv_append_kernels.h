#pragma once

#include <cstdint>

namespace heddle::cpu::attention {

/// out[0, head_dim) = T(x turned): pairs (d, d + num_pairs), d < num_pairs, by cos and sin
/// [num_pairs]; the others as they are. out may be x.
template <class T>
void rotate_head(const T* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                 T* out);

}  // namespace heddle::cpu::attention
