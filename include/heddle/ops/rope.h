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

/// The frequency correction of YaRN (Peng et al. 2023, arXiv 2309.00071): f(d) becomes
///   (ramp / factor + 1 - ramp) f(d),  ramp = clamp((d - low) / (high - low), 0, 1)
///   low  = max(pair(beta_fast), 0)
///   high = min(pair(beta_slow), rotary_dim - 1), raised by 0.001 if it equals low
///   pair(r) = rotary_dim ln(original_max_position / (2 pi r)) / (2 ln theta)
/// pair(r) turns r times over original_max_position. truncate: pair(beta_fast) is rounded down and
/// pair(beta_slow) up. YaRN also makes cosines and sines longer: RopeParams::attention_factor, see
/// yarn_attention_factor. theta must be above 1.
struct YarnRopeScaling {
  double factor = 1.0;
  double original_max_position = 4096.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  friend bool operator==(const YarnRopeScaling&, const YarnRopeScaling&) = default;
};

/// What YaRN's attention factor is where a model gives none: m(factor, 1), with m(factor, s) =
/// 0.1 s ln(factor) + 1, and 1 for a factor up to 1.
[[nodiscard]] double yarn_attention_factor(double factor);
/// For models that give mscale and mscale_all_dim, both other than 0: m(factor, mscale) /
/// m(factor, mscale_all_dim).
[[nodiscard]] double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

/// Rotary position embedding, rotate-half form: element d of the first half of the rotated part
/// turns with element d + rotary_dim / 2. The angle is position / scale * f(d), f(d) = theta^(-2 d
/// / rotary_dim), then the correction of Llama 3 or of YaRN where it is given, of which a model has
/// at most one.
struct RopeParams {
  double theta = 1e4;
  double scale = 1.0;                         // linear interpolation: positions are divided by it
  int rotary_dim = 0;                         // leading elements of a head that turn; 0: all. Even.
  std::optional<Llama3RopeScaling> llama3{};  // nothing: no correction
  std::optional<YarnRopeScaling> yarn{};      // the same
  /// Cosines and sines are multiplied by it ("mscale" of YaRN and LongRoPE), before they are
  /// rounded to f32 (on CUDA after it, too); what does not turn is not. On CUDA in rope_table
  /// alone: other operations refuse any other value than 1 (kUnsupported) there.
  double attention_factor = 1.0;
  friend bool operator==(const RopeParams&, const RopeParams&) = default;
};

/// Throws kInvalidArgument where a number of the parameters has no meaning, and kUnsupported where
/// the device of the context does not take them. All operations with RopeParams begin so; a model
/// may ask when it is loaded.
void check_rope_params(const ExecContext& ctx, const RopeParams& params);

/// f(d) / params.scale with the correction: the angle of pair d at position p is p times it. d <
/// rotary_dim / 2.
[[nodiscard]] double rope_frequency(const RopeParams& params, int rotary_dim, int d);

/// cos[t][d], sin[t][d] = attention_factor * cos, sin(angle of position t and frequency d)
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
