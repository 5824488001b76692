#include "heddle/ops/activation.h"

#include "bindings/call.h"

namespace heddle::python {

using namespace nb::literals;

void bind_activation(nb::module_& m) {
  m.def(
      "silu_and_mul",
      [](nb::handle y, nb::handle gate, nb::handle up) {
        Call call;
        const TensorView out = call.out("y", y);
        const ConstTensorView g = call.in("gate", gate), u = call.in("up", up);
        call.run([&](const ExecContext& ctx) { silu_and_mul(ctx, out, g, u); });
      },
      "y"_a, "gate"_a, "up"_a);
}

}  // namespace heddle::python
