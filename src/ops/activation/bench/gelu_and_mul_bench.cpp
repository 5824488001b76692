#include "heddle/ops/activation.h"

#include "ops/activation/bench/gated_bench.h"

namespace heddle {
namespace {

template <GeluForm kForm>
void run(TensorView y, ConstTensorView gate, ConstTensorView up) {
  gelu_and_mul({}, y, gate, up, kForm);
}

const bool registered = (add_gated_bench("gelu_and_mul/erf", run<GeluForm::kErf>),
                         add_gated_bench("gelu_and_mul/tanh", run<GeluForm::kTanh>), true);

}  // namespace
}  // namespace heddle
