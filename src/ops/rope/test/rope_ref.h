#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "heddle/ops/rope.h"

namespace heddle::ref {

/// The frequency of pair d by the words of the paper and of transformers: interpolated and
/// extrapolated frequencies, mixed by a ramp over the pairs.
inline double yarn_frequency(const YarnRopeScaling& s, double theta, int rotary_dim, int d) {
  const double extrapolated = 1.0 / std::pow(theta, 2.0 * d / rotary_dim);
  const double interpolated = extrapolated / s.factor;
  const double two_log_theta = 2.0 * std::log(theta), two_pi = 2.0 * std::numbers::pi;
  double low =
      rotary_dim * std::log(s.original_max_position / (s.beta_fast * two_pi)) / two_log_theta;
  double high =
      rotary_dim * std::log(s.original_max_position / (s.beta_slow * two_pi)) / two_log_theta;
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  if (low < 0.0) low = 0.0;
  if (high > rotary_dim - 1) high = rotary_dim - 1;
  if (low == high) high += 0.001;
  double ramp = (d - low) / (high - low);
  if (ramp < 0.0) ramp = 0.0;
  if (ramp > 1.0) ramp = 1.0;
  return interpolated * ramp + extrapolated * (1.0 - ramp);
}

/// The angle of pair d at a position, by the words of the contract: wavelengths decide.
inline double rope_angle(const RopeParams& params, int rotary_dim, int d, int64_t position) {
  double frequency = std::pow(params.theta, -2.0 * d / rotary_dim);
  if (params.llama3) {
    const Llama3RopeScaling& s = *params.llama3;
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    const double longest_kept = s.original_max_position / s.high_freq_factor;
    const double shortest_stretched = s.original_max_position / s.low_freq_factor;
    if (wavelength > shortest_stretched) {
      frequency /= s.factor;
    } else if (wavelength >= longest_kept) {
      const double smooth = (s.original_max_position / wavelength - s.low_freq_factor) /
                            (s.high_freq_factor - s.low_freq_factor);
      frequency = (1.0 - smooth) * frequency / s.factor + smooth * frequency;
    }
  }
  if (params.yarn) frequency = yarn_frequency(*params.yarn, params.theta, rotary_dim, d);
  return static_cast<double>(position) / params.scale * frequency;
}

/// One head at x [head_dim], in place.
inline void rope(double* x, int head_dim, int64_t position, const RopeParams& params) {
  const int rotary_dim = params.rotary_dim != 0 ? params.rotary_dim : head_dim;
  const int n = rotary_dim / 2;
  for (int d = 0; d < n; ++d) {
    const double angle = rope_angle(params, rotary_dim, d, position);
    const double a = x[d], b = x[d + n];
    x[d] = params.attention_factor * (a * std::cos(angle) - b * std::sin(angle));
    x[d + n] = params.attention_factor * (b * std::cos(angle) + a * std::sin(angle));
  }
}

}  // namespace heddle::ref
