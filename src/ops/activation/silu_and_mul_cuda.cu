#include "ops/activation/gated_cuda.h"
#include "ops/activation/sigmoid_cuda.h"
#include "ops/activation/silu_and_mul_kernels.h"

namespace heddle::cuda::activation {
namespace {

constexpr float kLog2E = 1.44269504f;

struct Silu {
  __device__ float operator()(float gate) const { return times_sigmoid2(gate, gate * kLog2E); }
};

}  // namespace

void silu_and_mul(const ExecContext& ctx, const GatedParams& p) {
  run_gated<Silu>(ctx, "silu_and_mul", p);
}

}  // namespace heddle::cuda::activation
