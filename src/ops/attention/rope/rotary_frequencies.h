#pragma once

#include "cuda/rotary.h"

#include "heddle/ops/rope.h"

namespace heddle {

/// Of heads of head_dim elements, at most twice kMaxPairs, as kernels for GPUs take them.
[[nodiscard]] inline cuda::RotaryFrequencies rotary_frequencies(const RopeParams& rope,
                                                                int head_dim) {
  const int rotary_dim = rope.rotary_dim != 0 ? rope.rotary_dim : head_dim;
  cuda::RotaryFrequencies result;
  result.num_pairs = rotary_dim / 2;
  for (int d = 0; d < result.num_pairs; ++d) {
    result.frequency[d] =
        cuda::wrap_turns(rope_frequency(rope, rotary_dim, d) * cuda::kTurnsPerRadian);
  }
  return result;
}

}  // namespace heddle
