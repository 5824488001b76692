#pragma once

#include <optional>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// The frequency correction of Llama 3.1: wavelengths beyond original_max_position /
/// low_freq_factor are stretched by `factor`, those below original_max_position / high_freq_factor
/// are kept, those between are interpolated.
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position = 8192.0;
  friend bool operator==(const Llama3RopeScaling&, const Llama3RopeScaling&) = default;
};

/// Rotary position embedding, rotate-half form: element d of the first half of the rotated part
/// turns with element d + rotary_dim / 2. The angle is position / scale * f(d), f(d) = theta^(-2 d
/// / rotary_dim), then the Llama 3 correction where it is given.
struct RopeParams {
  double theta = 1e4;
  double scale = 1.0;                         // linear interpolation: positions are divided by it
  int rotary_dim = 0;                         // leading elements of a head that turn; 0: all. Even.
  std::optional<Llama3RopeScaling> llama3{};  // nothing: no correction
  friend bool operator==(const RopeParams&, const RopeParams&) = default;
};

/// f(d) / params.scale with the correction: the angle of pair d at position p is p times it. d <
/// rotary_dim / 2.
[[nodiscard]] double rope_frequency(const RopeParams& params, int rotary_dim, int d);

/// cos[t][d], sin[t][d] = cos, sin(angle of position t and frequency d)
///   cos, sin  [num_tokens, rotary_dim / 2]  f32
///   positions [num_tokens]                  i32|i64
///   frequency_factors [rotary_dim / 2]      f32, or absent: frequency d is divided by factor d
///     (GGUF's rope_freqs)
/// Angles in double, reduced before the rounding to f32: exact to 1 ulp at any position.
/// params.rotary_dim may be 0;
/// it is then twice the width of the table.
void rope_table(const ExecContext& ctx, TensorView cos, TensorView sin, ConstTensorView positions,
                const RopeParams& params, ConstTensorView frequency_factors = {});

/// x[t][h] = T(rotated x[t][h]), in place:  x[d] cos - x[d + n] sin  and  x[d + n] cos + x[d] sin
///   for d < n
///   x        [num_tokens, num_heads, head_dim]  f32|f16|bf16; last axis without gaps, tokens and
///     heads of any stride
///   cos, sin [num_tokens, n]                    f32, from rope_table; elements from 2 n on stay as
///     they are
/// Computed in f32 (one product rounded, the other fused into the sum), rounded once.
void rope(const ExecContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin);

/// The same from positions [num_tokens] (i32|i64): rope_table and rope in one call, without a
/// table.
void rope(const ExecContext& ctx, TensorView x, ConstTensorView positions,
          const RopeParams& params);

}  // namespace heddle
