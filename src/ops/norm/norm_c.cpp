#include "heddle/ops/norm.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;
using heddle::capi::out_or_absent;

namespace {

heddle::RmsNormOptions options_of(const heddle_rms_norm_options* options) {
  if (options == nullptr) return {};
  return {.epsilon = options->epsilon,
          .weight_offset = options->weight_offset,
          .output_scale = {.fixed = in_or_absent("output_scale", options->output_scale),
                           .per_row = out_or_absent("row_scales", options->row_scales)}};
}

}  // namespace

void heddle_rms_norm_options_init(heddle_rms_norm_options* options) {
  const heddle::RmsNormOptions defaults;
  *options = {.epsilon = defaults.epsilon,
              .weight_offset = defaults.weight_offset,
              .output_scale = nullptr,
              .row_scales = nullptr};
}

heddle_status heddle_rms_norm(heddle_context* context, DLTensor* output, const DLTensor* input,
                              const DLTensor* weight, const heddle_rms_norm_options* options) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::rms_norm(ctx, out("output", output), in("input", input), in("weight", weight),
                     options_of(options));
  });
}

heddle_status heddle_fused_add_rms_norm(heddle_context* context, DLTensor* output,
                                        DLTensor* residual, const DLTensor* input,
                                        const DLTensor* weight,
                                        const heddle_rms_norm_options* options) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::fused_add_rms_norm(ctx, out("output", output), out("residual", residual),
                               in("input", input), in("weight", weight), options_of(options));
  });
}
