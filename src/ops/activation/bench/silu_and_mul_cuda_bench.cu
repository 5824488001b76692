// Times silu_and_mul on the first GPU:
//   bench_silu_and_mul_cuda --json FILE [--quick]

#include "heddle/ops/activation.h"

#include "ops/activation/bench/gated_bench_cuda.h"

namespace heddle {
namespace {

void run(testing::BenchProgram& bench) {
  time_gated_cases(bench, {"silu_and_mul", "silu", silu_and_mul});
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
