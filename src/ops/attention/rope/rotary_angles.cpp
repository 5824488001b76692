#include "ops/attention/rope/rotary_angles.h"

#include <cmath>

namespace heddle::cpu::attention {

RotaryAngles::RotaryAngles(const RopeParams& params, int head_dim) {
  const int rotary_dim = params.rotary_dim != 0 ? params.rotary_dim : head_dim;
  num_pairs = rotary_dim / 2;
  attention_factor = params.attention_factor;
  for (int d = 0; d < num_pairs; ++d) {
    frequency[d] = rope_frequency(params, rotary_dim, d);
    cos_step[d] = std::cos(frequency[d]);
    sin_step[d] = std::sin(frequency[d]);
  }
}

void RotaryAngles::at(int64_t position, float* cos, float* sin) const {
  for (int d = 0; d < num_pairs; ++d) {
    const double angle = static_cast<double>(position) * frequency[d];
    cos[d] = static_cast<float>(attention_factor * std::cos(angle));
    sin[d] = static_cast<float>(attention_factor * std::sin(angle));
  }
}

RotaryWalk::RotaryWalk(const RotaryAngles& angles, int64_t position) : angles_(angles) {
  for (int d = 0; d < angles.num_pairs; ++d) {
    const double angle = static_cast<double>(position) * angles.frequency[d];
    cos_[d] = std::cos(angle);
    sin_[d] = std::sin(angle);
  }
}

void RotaryWalk::next(float* cos, float* sin) {
  for (int d = 0; d < angles_.num_pairs; ++d) {
    const double c = cos_[d], s = sin_[d];
    cos[d] = static_cast<float>(angles_.attention_factor * c);
    sin[d] = static_cast<float>(angles_.attention_factor * s);
    cos_[d] = c * angles_.cos_step[d] - s * angles_.sin_step[d];
    sin_[d] = s * angles_.cos_step[d] + c * angles_.sin_step[d];
  }
}

}  // namespace heddle::cpu::attention
