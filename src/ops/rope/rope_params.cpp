#include <algorithm>
#include <cmath>
#include <numbers>

#include "heddle/core/error.h"
#include "heddle/ops/rope.h"

namespace heddle {
namespace {

/// What a frequency is multiplied by.
double llama3_factor(const Llama3RopeScaling& llama3, double frequency) {
  // How often the pair turns over the context that the model was first trained with.
  const double turns = llama3.original_max_position * frequency / (2.0 * std::numbers::pi);
  const double kept = std::clamp(
      (turns - llama3.low_freq_factor) / (llama3.high_freq_factor - llama3.low_freq_factor), 0.0,
      1.0);
  return kept + (1.0 - kept) / llama3.factor;
}

/// What the frequency of pair d is multiplied by.
double yarn_factor(const YarnRopeScaling& yarn, double theta, int rotary_dim, int d) {
  constexpr double kRaised = 0.001;  // of a ramp without a width
  // The pair that turns so often over the context that the model was first trained with.
  const auto pair_with = [&](double num_turns) {
    const double turns = yarn.original_max_position / (num_turns * 2.0 * std::numbers::pi);
    return rotary_dim * std::log(turns) / (2.0 * std::log(theta));
  };
  double low = pair_with(yarn.beta_fast), high = pair_with(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += kRaised;
  const double ramp = std::clamp((d - low) / (high - low), 0.0, 1.0);
  return ramp / yarn.factor + (1.0 - ramp);
}

double yarn_scale(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void check(const Llama3RopeScaling& llama3) {
  HEDDLE_CHECK(llama3.factor > 0.0 && llama3.original_max_position > 0.0,
               "Llama3RopeScaling: factor ", llama3.factor, " and original_max_position ",
               llama3.original_max_position, ", expected > 0");
  HEDDLE_CHECK(0.0 < llama3.low_freq_factor && llama3.low_freq_factor < llama3.high_freq_factor,
               "Llama3RopeScaling: low_freq_factor ", llama3.low_freq_factor,
               " must be above 0 and below high_freq_factor ", llama3.high_freq_factor);
}

void check(const YarnRopeScaling& yarn, double theta) {
  HEDDLE_CHECK(yarn.factor > 0.0 && std::isfinite(yarn.factor) &&
                   yarn.original_max_position > 0.0 && std::isfinite(yarn.original_max_position),
               "YarnRopeScaling: factor ", yarn.factor, " and original_max_position ",
               yarn.original_max_position, ", expected finite numbers above 0");
  HEDDLE_CHECK(
      0.0 < yarn.beta_slow && yarn.beta_slow < yarn.beta_fast && std::isfinite(yarn.beta_fast),
      "YarnRopeScaling: beta_slow ", yarn.beta_slow, " must be above 0 and below beta_fast ",
      yarn.beta_fast);
  HEDDLE_CHECK(theta > 1.0, "RopeParams::theta is ", theta, ", expected > 1 with YarnRopeScaling");
}

}  // namespace

double rope_frequency(const RopeParams& params, int rotary_dim, int d) {
  const double frequency = std::pow(params.theta, -2.0 * d / rotary_dim);
  if (params.llama3) return llama3_factor(*params.llama3, frequency) * frequency / params.scale;
  if (params.yarn)
    return yarn_factor(*params.yarn, params.theta, rotary_dim, d) * frequency / params.scale;
  return frequency / params.scale;
}

double yarn_attention_factor(double factor) { return yarn_scale(factor, 1.0); }

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  return yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all_dim);
}

void check_rope_params(const ExecContext& ctx, const RopeParams& params) {
  HEDDLE_CHECK(params.theta > 0.0, "RopeParams::theta is ", params.theta, ", expected > 0");
  HEDDLE_CHECK(params.scale > 0.0, "RopeParams::scale is ", params.scale, ", expected > 0");
  HEDDLE_CHECK(!params.llama3 || !params.yarn,
               "RopeParams has llama3 and yarn, expected at most one of them");
  if (params.llama3) check(*params.llama3);
  if (params.yarn) check(*params.yarn, params.theta);
  HEDDLE_CHECK(params.attention_factor > 0.0 && std::isfinite(params.attention_factor),
               "RopeParams::attention_factor is ", params.attention_factor,
               ", expected a finite number above 0");
  if (params.attention_factor != 1.0 && ctx.device.type != DeviceType::kCpu) {
    throw_error(ErrorCode::kUnsupported, "RopeParams::attention_factor is ",
                params.attention_factor, ", supported on ", ctx.device, ": 1");
  }
}

}  // namespace heddle
