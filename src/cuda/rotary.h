#pragma once

#include <cstdint>
#include <numbers>

namespace heddle::cuda {

/// A number of full turns modulo 1, in units of 2^-64. Angles in these units are reduced by the
/// overflow of integers, so position * frequency is one wrapping multiplication without an error of
/// its own, also for negative positions.
using Turns = uint64_t;

/// A frequency in turns per position, 0 or more, modulo 1. Exact, but for what lies below 2^-64.
[[nodiscard]] inline Turns wrap_turns(double turns) {
  const double rest = turns - static_cast<double>(static_cast<uint64_t>(turns));
  return static_cast<Turns>(rest * 0x1p64);
}
inline constexpr double kTurnsPerRadian = 0.5 * std::numbers::inv_pi;

/// The frequencies of the pairs of a head, for kernels that rotate: pair d turns by position *
/// frequency[d]. 1 KB; a kernel takes it as a __grid_constant__ parameter of its own, so that the
/// parameters of kernels that do not rotate stay short.
struct RotaryFrequencies {
  static constexpr int kMaxPairs = 128;
  /// Elements d and d + num_pairs of a head are pair d; those from 2 num_pairs on stay as they are.
  int32_t num_pairs = 0;
  Turns frequency[kMaxPairs];
};

}  // namespace heddle::cuda
