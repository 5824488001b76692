#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"

#include "core/math.h"
#include "ops/sampling/take/take_drawn_tokens.h"

namespace heddle::cuda::sampling {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    take_drawn_tokens_kernel(const __grid_constant__ DrawnTokenParams p) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_predecessor();
  trigger_dependents();
  if (t >= p.num_tokens) return;
  const int32_t source = p.sources[t];
  if (source >= 0 && source < p.num_drawn) p.token_ids[t] = p.drawn[source];
}

}  // namespace

void take_drawn_tokens(const ExecContext& ctx, const DrawnTokenParams& tokens) {
  if (tokens.num_tokens == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div(tokens.num_tokens, int64_t{kThreads}));
  launch_early<take_drawn_tokens_kernel>(ctx, dim3(blocks), kThreads, tokens);
}

}  // namespace heddle::cuda::sampling
