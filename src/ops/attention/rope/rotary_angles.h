#pragma once

#include <cstdint>

#include "heddle/ops/rope.h"

namespace heddle::cpu::attention {

/// Cosines and sines, times the attention factor, for rotating queries and keys inside attention,
/// by position.
struct RotaryAngles {
  static constexpr int kMaxPairs = 128;

  RotaryAngles(const RopeParams& params, int head_dim);

  /// cos, sin [num_pairs] at a position.
  void at(int64_t position, float* cos, float* sin) const;

  int num_pairs;
  double attention_factor;
  double frequency[kMaxPairs];  // radians per position
  double cos_step[kMaxPairs],
      sin_step[kMaxPairs];  // of one frequency: the turn to the next position
};

/// Walks through positions one by one. Starts exactly and turns by one step at a time in double:
/// over a tile of keys the error stays below 1e-13, so the f32 values are those of RotaryAngles::at
/// but for rare ties, at a tenth of the cost.
class RotaryWalk {
 public:
  RotaryWalk(const RotaryAngles& angles, int64_t position);

  /// cos, sin [num_pairs] of the current position; goes on to the next.
  void next(float* cos, float* sin);

 private:
  const RotaryAngles& angles_;
  double cos_[RotaryAngles::kMaxPairs], sin_[RotaryAngles::kMaxPairs];
};

}  // namespace heddle::cpu::attention
