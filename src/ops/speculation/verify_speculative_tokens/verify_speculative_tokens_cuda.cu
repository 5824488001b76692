#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"

#include "core/math.h"
#include "ops/speculation/verify_speculative_tokens/verify_speculative_tokens_cuda.h"

namespace heddle::cuda::speculation {
namespace {

constexpr int kThreads = 64;  // few, so that a small batch spreads over many multiprocessors

// mask[base(p) + j] = mask[base(p) + j - 1] and input[base(p) + j] == output[base(p) + j - 1];
// last_one_indices[p] = the last true one. One thread per row; after the last request all threads
// clear the mask. Grid ceil(num_rows / kThreads), at least one block.
__global__ void __launch_bounds__(kThreads) verify_kernel(const __grid_constant__ VerifyParams p) {
  begin_early(p);
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t num_decode = p.num_decode.read(), num_active = p.num_active(num_decode);
  if (row < num_active) {
    p.last_one_indices.set(row,
                           verify_tokens(p, row, num_decode, p.layout.tokens(row, num_decode)));
  } else if (row < p.num_rows) {
    p.last_one_indices.set(row, -1);
  }
  clear_mask_tail(p, num_decode, num_active, row, int64_t{gridDim.x} * kThreads);
}

}  // namespace

void verify_speculative_tokens(const ExecContext& ctx, const VerifyParams& params) {
  const int64_t blocks = ceil_div(params.num_rows, kThreads);
  launch_early<verify_kernel>(ctx, static_cast<unsigned>(blocks > 0 ? blocks : 1), kThreads,
                              params);
}

}  // namespace heddle::cuda::speculation
