#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/speculation/call/speculative_step_kernels.h"
#include "ops/speculation/lanes/lanes_cuda.h"
#include "ops/speculation/lanes/rewind_kv_cache_cuda.h"
#include "ops/speculation/verify_speculative_tokens/verify_speculative_tokens_cuda.h"

namespace heddle::cuda::speculation {
namespace {

// verify_speculative_tokens, prepare_next_forward_pass and rewind_kv_cache of each request, and its
// next step. One thread per request: a chain of loads (counts, starts, tokens, block ids), which
// all else overlaps. With kListed one block goes over all requests in tiles of blockDim.x, and sums
// over its threads give each request its place in the list of released blocks; else grid
// ceil(num_rows / blockDim.x). Two blocks a multiprocessor, else ptxas spills to have more.
template <bool kListed>
__global__ void __launch_bounds__(kListThreads, 2)
    step_kernel(const __grid_constant__ SpeculativeStepParams p, int64_t num_rows) {
  __shared__ BlockSums::Shared shared;
  BlockSums sums(shared);
  const int64_t num_decode = p.verify.num_decode.read();
  const int64_t num_active = p.verify.num_active(num_decode);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x; first < num_rows; first += stride) {
    const int64_t i = first + threadIdx.x;
    const bool active = i < num_active, decode = i < num_decode;
    KvRow row{};
    KvRewind rewind{};
    TokenRange range{};
    int64_t last = -1;
    if (active) {
      row = p.kv.load(i);
      const int64_t drafts = decode ? p.verify.layout.drafts(i) : 0;
      range = p.verify.layout.tokens_from(p.verify.layout.begin(i, num_decode), drafts);
      touch_ids(p.kv, i, row);
      if (p.has_required_logit_indices && range.begin < range.end) {
        touch(p.required_logit_indices.address(range.begin));
      }
      last = verify_tokens(p.verify, i, num_decode, range);
      rewind = p.kv.plan(row, drafts - (last < 0 ? 0 : last - range.begin), GeneralQuotient{});
    }
    const int64_t place = kListed ? sums.before(rewind.num_released) : 0;
    if (i < p.num_requests) {
      p.verify.last_one_indices.set(i, last);
      p.store_next(i, range.begin, last, decode);
    } else if (i < p.num_last_ones) {
      p.verify.last_one_indices.set(i, -1);
    }
    if (active) {
      store_rewind(p.kv, p.releases, i, row, rewind, place);
      p.next_step.store(p.kv, i, rewind);
    } else {
      if (i < p.num_requests) p.next_step.store_padding(i);
      p.releases.store_padding(i);
    }
  }
  if (kListed && threadIdx.x == 0) p.releases.list_size.set(0, sums.total());
  clear_mask_tail(p.verify, num_decode, num_active, thread, stride);
}

}  // namespace

void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params) {
  const bool listed = params.releases.listed;
  const int64_t num_rows = params.num_rows();
  if (num_rows == 0 && !listed && params.verify.accepted_tokens_mask.data() == nullptr) return;
  const SpeculationChoice choice = speculative_step_by_lane_groups(ctx, params);
  log_choice("speculative_step", choice);
  if (choice.kernel == SpeculationKernel::kLaneGroups) return;
  (listed ? step_kernel<true>
          : step_kernel<false>)<<<choice.blocks, choice.threads, 0, ctx.stream>>>(params, num_rows);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
