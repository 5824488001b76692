#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/speculation/lanes/lanes_cuda.h"

namespace heddle::cuda::speculation {
namespace {

// One thread per row; grid and block: select_speculation_kernel.
__global__ void __launch_bounds__(kGeneralThreads)
    prepare_kernel(const __grid_constant__ PrepareParams p) {
  const int64_t row = int64_t{blockIdx.x} * kGeneralThreads + threadIdx.x;
  if (row < p.num_rows) p.prepare(row);
}

}  // namespace

void prepare_next_forward_pass(const ExecContext& ctx, const PrepareParams& params) {
  if (params.num_rows == 0) return;
  const SpeculationChoice choice = prepare_next_forward_pass_by_lane_groups(ctx, params);
  log_choice("prepare_next_forward_pass", choice);
  if (choice.kernel == SpeculationKernel::kLaneGroups) return;
  prepare_kernel<<<choice.blocks, choice.threads, 0, ctx.stream>>>(params);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
