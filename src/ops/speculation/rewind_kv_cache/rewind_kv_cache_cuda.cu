#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/speculation/lanes/lanes_cuda.h"
#include "ops/speculation/lanes/rewind_kv_cache_cuda.h"

namespace heddle::cuda::speculation {
namespace {

// Takes rejected(i) tokens off the cache of each active request i. One thread per row: of requests,
// or of the releases if they are more. With kListed one block goes over all requests in tiles of
// blockDim.x, and sums over its threads give each request its place in the list; else grid
// ceil(num_rows / blockDim.x).
template <bool kListed>
__global__ void __launch_bounds__(kListThreads)
    rewind_kernel(const __grid_constant__ RewindParams p, int64_t num_rows) {
  __shared__ BlockSums::Shared shared;
  BlockSums sums(shared);
  const int64_t num_active = p.num_active.read();
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x; first < num_rows;
       first += int64_t{gridDim.x} * blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const bool active = i < num_active;
    KvRow row{};
    KvRewind rewind{};
    if (active) {
      row = p.kv.load(i);
      touch_ids(p.kv, i, row);
      rewind = p.kv.plan(row, p.rejected(i), GeneralQuotient{});
    }
    const int64_t place = kListed ? sums.before(rewind.num_released) : 0;
    if (active) {
      store_rewind(p.kv, p.releases, i, row, rewind, place);
    } else {
      p.releases.store_padding(i);
    }
  }
  if (kListed && threadIdx.x == 0) p.releases.list_size.set(0, sums.total());
}

}  // namespace

void rewind_kv_cache(const ExecContext& ctx, const RewindParams& params) {
  const bool listed = params.releases.listed;
  const int64_t num_rows = params.num_rows();
  if (num_rows == 0 && !listed) return;
  const SpeculationChoice choice = rewind_kv_cache_by_lane_groups(ctx, params);
  log_choice("rewind_kv_cache", choice);
  if (choice.kernel == SpeculationKernel::kLaneGroups) return;
  (listed
       ? rewind_kernel<true>
       : rewind_kernel<false>)<<<choice.blocks, choice.threads, 0, ctx.stream>>>(params, num_rows);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
