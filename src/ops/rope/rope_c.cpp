#include "heddle/ops/rope.h"

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/rope_params.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;
using heddle::capi::rope_params_of;

heddle::RopeParams heddle::capi::rope_params_of(const heddle_rope_params* params) {
  if (params == nullptr) return {};
  RopeParams result{
      .theta = params->theta, .scale = params->scale, .rotary_dim = params->rotary_dim};
  if (params->has_llama3) {
    result.llama3 = {.factor = params->llama3_factor,
                     .low_freq_factor = params->llama3_low_freq_factor,
                     .high_freq_factor = params->llama3_high_freq_factor,
                     .original_max_position = params->llama3_original_max_position};
  }
  return result;
}

void heddle_rope_params_init(heddle_rope_params* params) {
  const heddle::RopeParams defaults;
  const heddle::Llama3RopeScaling llama3;
  *params = {.theta = defaults.theta,
             .scale = defaults.scale,
             .rotary_dim = defaults.rotary_dim,
             .has_llama3 = false,
             .llama3_factor = llama3.factor,
             .llama3_low_freq_factor = llama3.low_freq_factor,
             .llama3_high_freq_factor = llama3.high_freq_factor,
             .llama3_original_max_position = llama3.original_max_position};
}

double heddle_rope_frequency(const heddle_rope_params* params, int32_t rotary_dim, int32_t d) {
  return heddle::rope_frequency(rope_params_of(params), rotary_dim, d);
}

heddle_status heddle_rope_table(heddle_context* context, DLTensor* cos, DLTensor* sin,
                                const DLTensor* positions, const heddle_rope_params* params,
                                const DLTensor* frequency_factors) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::rope_table(ctx, out("cos", cos), out("sin", sin), in("positions", positions),
                       rope_params_of(params),
                       in_or_absent("frequency_factors", frequency_factors));
  });
}

heddle_status heddle_rope(heddle_context* context, DLTensor* x, const DLTensor* cos,
                          const DLTensor* sin) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::rope(ctx, out("x", x), in("cos", cos), in("sin", sin));
  });
}

heddle_status heddle_rope_positions(heddle_context* context, DLTensor* x, const DLTensor* positions,
                                    const heddle_rope_params* params) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::rope(ctx, out("x", x), in("positions", positions), rope_params_of(params));
  });
}
