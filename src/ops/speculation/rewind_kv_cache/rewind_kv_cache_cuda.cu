#include <algorithm>

#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/speculation/rewind_kv_cache/rewind_kv_cache_cuda.h"
#include "ops/speculation/shared/lanes_cuda.h"

namespace heddle::cuda::speculation {
namespace {

/// RewindParams.
struct DeviceRewind {
  DeviceKvBlocks kv;
  DeviceReleases releases;
  ConstIndexVector accepted_counts, prefill_status;  // [num_requests]
  DeviceDrafts layout;
  DeviceCount num_active;
  int64_t num_rows;  // requests, or rows of the releases if they are more

  explicit DeviceRewind(const RewindParams& p)
      : kv(p.kv),
        releases(p.releases),
        accepted_counts(on_device(p.accepted_counts)),
        prefill_status(on_device(p.prefill_status)),
        layout(p.layout),
        num_active(on_device(p.num_active)),
        num_rows(std::max({p.num_requests, releases.num_last_ids, releases.mask_size})) {}

  /// Tokens that request i has to give back.
  [[nodiscard]] __device__ int64_t rejected(int64_t i) const {
    const int64_t status = prefill_status[i], accepted = accepted_counts[i];
    const int64_t drafts = layout.drafts(i);
    if (status == 1) return 0;
    return accepted < 0 ? drafts : accepted < drafts ? drafts - accepted : 0;
  }
};

// Takes rejected(i) tokens off the cache of each active request i. One thread per request. With
// kListed one block goes over all requests in tiles of blockDim.x, and sums over its threads give
// each request its place in the list; else grid ceil(num_rows / blockDim.x).
template <bool kListed>
__global__ void __launch_bounds__(kListThreads)
    rewind_kernel(const __grid_constant__ DeviceRewind p) {
  __shared__ TileSums::Shared shared;
  TileSums sums(shared);
  const int64_t num_active = p.num_active.read();
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x; first < p.num_rows;
       first += int64_t{gridDim.x} * blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const bool active = i < num_active;
    KvRow row{};
    KvRewind rewind{};
    if (active) {
      row = p.kv.load(i);
      p.kv.touch_ids(i, row);
      rewind = p.kv.plan(row, p.rejected(i));
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
  const DeviceRewind p(params);
  const bool listed = params.releases.listed;
  if (p.num_rows == 0 && !listed) return;
  const SpeculationChoice choice = rewind_kv_cache_by_lane_groups(ctx, params);
  log_choice("rewind_kv_cache", choice);
  if (choice.kernel == SpeculationKernel::kLaneGroups) return;
  (listed ? rewind_kernel<true>
          : rewind_kernel<false>)<<<choice.blocks, choice.threads, 0, ctx.stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
