#include "heddle/ops/activation.h"

#include "ops/activation/bench/gated_bench.h"

namespace heddle {
namespace {

void run(TensorView y, ConstTensorView gate, ConstTensorView up) { silu_and_mul({}, y, gate, up); }

const bool registered = (add_gated_bench("silu_and_mul", run), true);

}  // namespace
}  // namespace heddle
