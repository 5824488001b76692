#pragma once

#include <cstdint>

namespace heddle {

/// Rotates the pairs (d, d + pair_distance), first_pair <= d < first_pair + num_pairs, of every
/// head of some tokens.
struct RopeKernelParams {
  void* x = nullptr;           // [num_tokens, num_heads, head_dim] of T
  const float* cos = nullptr;  // [num_tokens, num_pairs], first column: pair first_pair
  const float* sin = nullptr;
  int64_t token_stride = 0, head_stride = 0, cos_stride = 0, sin_stride = 0;  // elements
  int64_t num_heads = 0, pair_distance = 0, first_pair = 0, num_pairs = 0;
};

namespace cpu::rope {

/// Tokens [begin, end).
template <class T>
void rope(const RopeKernelParams& params, int64_t begin, int64_t end);

}  // namespace cpu::rope
}  // namespace heddle
