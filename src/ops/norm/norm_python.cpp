#include "heddle/ops/norm.h"

#include "bindings/call.h"

namespace heddle::python {

using namespace nb::literals;

namespace {

/// Options, with the arrays of an output of f8e4m3 or None.
RmsNormOptions options_of(Call& call, float epsilon, int weight_offset, nb::handle output_scale,
                          nb::handle row_scales) {
  return {.epsilon = epsilon,
          .weight_offset = weight_offset,
          .output_scale = {.fixed = call.optional_in("output_scale", output_scale),
                           .per_row = call.optional_out("row_scales", row_scales)}};
}

}  // namespace

void bind_norm(nb::module_& m) {
  const RmsNormOptions defaults;

  m.def(
      "rms_norm",
      [](nb::handle output, nb::handle input, nb::handle weight, float epsilon, int weight_offset,
         nb::handle output_scale, nb::handle row_scales) {
        Call call;
        const TensorView y = call.out("output", output);
        const ConstTensorView x = call.in("input", input), w = call.in("weight", weight);
        const RmsNormOptions options =
            options_of(call, epsilon, weight_offset, output_scale, row_scales);
        call.run([&](const ExecContext& ctx) { rms_norm(ctx, y, x, w, options); });
      },
      "output"_a, "input"_a, "weight"_a, nb::kw_only(), "epsilon"_a = defaults.epsilon,
      "weight_offset"_a = defaults.weight_offset, "output_scale"_a = nb::none(),
      "row_scales"_a = nb::none());

  m.def(
      "fused_add_rms_norm",
      [](nb::handle output, nb::handle residual, nb::handle input, nb::handle weight, float epsilon,
         int weight_offset, nb::handle output_scale, nb::handle row_scales) {
        Call call;
        const TensorView y = call.out("output", output), r = call.out("residual", residual);
        const ConstTensorView x = call.in("input", input), w = call.in("weight", weight);
        const RmsNormOptions options =
            options_of(call, epsilon, weight_offset, output_scale, row_scales);
        call.run([&](const ExecContext& ctx) { fused_add_rms_norm(ctx, y, r, x, w, options); });
      },
      "output"_a, "residual"_a, "input"_a, "weight"_a, nb::kw_only(),
      "epsilon"_a = defaults.epsilon, "weight_offset"_a = defaults.weight_offset,
      "output_scale"_a = nb::none(), "row_scales"_a = nb::none());
}

}  // namespace heddle::python
