#include "ops/activation/gated_cuda.h"
#include "ops/activation/gelu.h"
#include "ops/activation/gelu_and_mul_kernels.h"
#include "ops/activation/sigmoid_cuda.h"

namespace heddle::cuda::activation {
namespace {

constexpr double kLog2E = 1.4426950408889634;

/// max(x, 0) - a Q(a), as gelu.h says. NaN gives NaN.
struct GeluErf {
  __device__ float operator()(float x) const {
    const float a = fabsf(x) > gelu::kBound ? gelu::kBound : fabsf(x);
    const float z = __fdividef(1.0f, fmaf(a, gelu::kSlope, 1.0f));
    constexpr gelu::Tail kTail;
    float tail = kTail.t[kTail.kDegree];
#pragma unroll
    for (int i = kTail.kDegree - 1; i >= 0; --i) tail = fmaf(tail, z, kTail.t[i]);
    const float q = tail * z * exp2_fast(a * a * static_cast<float>(-0.5 * kLog2E));
    return fmaf(-a, q, x < 0.0f ? 0.0f : x);
  }
};

struct GeluTanh {
  __device__ float operator()(float x) const {
    constexpr auto kLinear = static_cast<float>(gelu::kLinear * kLog2E);
    constexpr auto kCubic = static_cast<float>(gelu::kCubic * kLog2E);
    return times_sigmoid2(x, x * fmaf(x * x, kCubic, kLinear));
  }
};

}  // namespace

void gelu_and_mul(const ExecContext& ctx, const GatedParams& p, GeluForm form) {
  form == GeluForm::kTanh ? run_gated<GeluTanh>(ctx, "gelu_and_mul", p)
                          : run_gated<GeluErf>(ctx, "gelu_and_mul", p);
}

}  // namespace heddle::cuda::activation
