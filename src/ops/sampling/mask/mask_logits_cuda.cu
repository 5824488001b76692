#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"

#include "core/math.h"
#include "ops/sampling/mask/mask_logits.h"

namespace heddle::cuda::sampling {
namespace {

constexpr int kThreads = 256;
constexpr int kTokensPerThread = 8;  // kThreads apart, so that a warp reads one word at a time
constexpr int64_t kTokensPerBlock = kThreads * kTokensPerThread;

// Grid [num_rows, ceil(vocab_size / kTokensPerBlock)].
__global__ void __launch_bounds__(kThreads)
    mask_logits_kernel(const __grid_constant__ MaskParams p) {
  wait_for_predecessor();
  trigger_dependents();
  const int64_t row = blockIdx.x;
  const int64_t index = p.indices[row];
  const bool has_mask = index >= 0 && index < p.num_masks;
  const float* const from = p.logits + row * p.logits_stride;
  float* const to = p.masked + row * p.masked_stride;
  const int64_t first = blockIdx.y * kTokensPerBlock + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kTokensPerThread; ++i) {
    const int64_t t = first + i * kThreads;
    if (t >= p.vocab_size) break;
    const bool is_allowed =
        !has_mask ||
        (p.masks[index * p.mask_stride + t / kTokensPerWord] >> (t % kTokensPerWord) & 1);
    to[t] = is_allowed ? from[t] : -INFINITY;
  }
}

}  // namespace

void mask_logits(const ExecContext& ctx, const MaskParams& params) {
  if (params.num_rows == 0 || params.vocab_size == 0) return;
  const dim3 grid(static_cast<unsigned>(params.num_rows),
                  static_cast<unsigned>(ceil_div(params.vocab_size, kTokensPerBlock)));
  launch_early<mask_logits_kernel>(ctx, grid, kThreads, params);
}

}  // namespace heddle::cuda::sampling
