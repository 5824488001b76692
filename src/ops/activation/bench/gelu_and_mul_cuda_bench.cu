// Times gelu_and_mul on the first GPU:
//   bench_gelu_and_mul_cuda --json FILE [--quick]

#include "heddle/ops/activation.h"

#include "ops/activation/bench/gated_bench_cuda.h"

namespace heddle {
namespace {

template <GeluForm kForm>
void gelu(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up) {
  gelu_and_mul(ctx, y, gate, up, kForm);
}

void run(testing::BenchProgram& bench) {
  time_gated_cases(bench, {"gelu_and_mul", "erf", gelu<GeluForm::kErf>});
  time_gated_cases(bench, {"gelu_and_mul", "tanh", gelu<GeluForm::kTanh>});
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
