#include "heddle/ops/activation.h"

#include <cstring>

#include "heddle/core/error.h"

#include "bindings/array_operation.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

GeluForm form_named(const char* name) {
  if (std::strcmp(name, "erf") == 0) return GeluForm::kErf;
  HEDDLE_CHECK(std::strcmp(name, "tanh") == 0, "form is \"", name,
               "\", expected \"erf\" or \"tanh\"");
  return GeluForm::kTanh;
}

}  // namespace

void bind_activation(nb::module_& m) {
  bind_arrays(m, "silu_and_mul", &silu_and_mul, OutArray{"y"}, InArray{"gate"}, InArray{"up"});
  m.def(
      "gelu_and_mul",
      [](nb::handle y, nb::handle gate, nb::handle up, const char* form) {
        Call call;
        const TensorView out = call.out("y", y);
        const ConstTensorView g = call.in("gate", gate), u = call.in("up", up);
        const GeluForm gelu = form_named(form);
        call.run([&](const ExecContext& ctx) { gelu_and_mul(ctx, out, g, u, gelu); });
      },
      "y"_a, "gate"_a, "up"_a, nb::kw_only(), "form"_a);
}

}  // namespace heddle::python
