#include "heddle/ops/norm.h"

#include "call.h"
#include "families.h"

namespace heddle::python {

using namespace nb::literals;

void bind_norm(nb::module_& m) {
  constexpr RmsNormOptions kDefaults;

  m.def(
      "rms_norm",
      [](nb::handle output, nb::handle input, nb::handle weight, float epsilon, int weight_offset) {
        Call call;
        const TensorView y = call.out("output", output);
        const ConstTensorView x = call.in("input", input), w = call.in("weight", weight);
        call.run([&](const ExecContext& ctx) {
          rms_norm(ctx, y, x, w, {.epsilon = epsilon, .weight_offset = weight_offset});
        });
      },
      "output"_a, "input"_a, "weight"_a, nb::kw_only(), "epsilon"_a = kDefaults.epsilon,
      "weight_offset"_a = kDefaults.weight_offset);

  m.def(
      "fused_add_rms_norm",
      [](nb::handle output, nb::handle residual, nb::handle input, nb::handle weight, float epsilon,
         int weight_offset) {
        Call call;
        const TensorView y = call.out("output", output), r = call.out("residual", residual);
        const ConstTensorView x = call.in("input", input), w = call.in("weight", weight);
        call.run([&](const ExecContext& ctx) {
          fused_add_rms_norm(ctx, y, r, x, w, {.epsilon = epsilon, .weight_offset = weight_offset});
        });
      },
      "output"_a, "residual"_a, "input"_a, "weight"_a, nb::kw_only(),
      "epsilon"_a = kDefaults.epsilon, "weight_offset"_a = kDefaults.weight_offset);
}

}  // namespace heddle::python
