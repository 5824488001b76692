#include "heddle/ops/rope.h"

#include "bindings/call.h"
#include "bindings/scalars.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

void table(nb::handle cos, nb::handle sin, nb::handle positions, double theta, double scale,
           int rotary_dim, const Llama3Numbers& llama3, nb::handle frequency_factors) {
  Call call;
  const TensorView c = call.out("cos", cos), s = call.out("sin", sin);
  const ConstTensorView p = call.in("positions", positions);
  const ConstTensorView factors = call.optional_in("frequency_factors", frequency_factors);
  const RopeParams params = rope_params(theta, scale, rotary_dim, llama3);
  call.run([&](const ExecContext& ctx) { rope_table(ctx, c, s, p, params, factors); });
}

void rotate(nb::handle x, nb::handle cos, nb::handle sin, nb::handle positions, double theta,
            double scale, int rotary_dim, const Llama3Numbers& llama3) {
  HEDDLE_CHECK(cos.is_none() == sin.is_none() && cos.is_none() != positions.is_none(),
               "rope takes cos and sin, or positions");
  Call call;
  const TensorView out = call.out("x", x);
  if (!positions.is_none()) {
    const ConstTensorView p = call.in("positions", positions);
    const RopeParams params = rope_params(theta, scale, rotary_dim, llama3);
    return call.run([&](const ExecContext& ctx) { rope(ctx, out, p, params); });
  }
  const ConstTensorView c = call.in("cos", cos), s = call.in("sin", sin);
  call.run([&](const ExecContext& ctx) { rope(ctx, out, c, s); });
}

}  // namespace

void bind_rope(nb::module_& m) {
  constexpr RopeParams kDefaults;
  m.def("rope_table", &table, "cos"_a, "sin"_a, "positions"_a, nb::kw_only(),
        "theta"_a = kDefaults.theta, "scale"_a = kDefaults.scale,
        "rotary_dim"_a = kDefaults.rotary_dim, "llama3_scaling"_a = nb::none(),
        "frequency_factors"_a = nb::none());
  m.def("rope", &rotate, "x"_a, "cos"_a = nb::none(), "sin"_a = nb::none(), nb::kw_only(),
        "positions"_a = nb::none(), "theta"_a = kDefaults.theta, "scale"_a = kDefaults.scale,
        "rotary_dim"_a = kDefaults.rotary_dim, "llama3_scaling"_a = nb::none());
}

}  // namespace heddle::python
