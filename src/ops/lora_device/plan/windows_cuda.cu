#include "cuda/check.h"

#include "ops/lora_device/plan/window_cuda.h"

namespace heddle::cuda::lora {
namespace {

// Grid: one block a window.
__global__ void __launch_bounds__(kBlockThreads)
    window_plan_kernel(const __grid_constant__ PlanParams p) {
  __shared__ window_plan::WindowShared s;
  window_plan::plan_window(p, static_cast<int>(blockIdx.x), s);
}

}  // namespace

void plan_windows(const PlanParams& p, cudaStream_t stream) {
  window_plan_kernel<<<static_cast<unsigned>(p.num_windows), kBlockThreads, 0, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
