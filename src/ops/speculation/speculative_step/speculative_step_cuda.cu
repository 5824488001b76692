#include <algorithm>

#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/speculation/prepare_next_forward_pass/prepare_next_forward_pass_cuda.h"
#include "ops/speculation/rewind_kv_cache/rewind_kv_cache_cuda.h"
#include "ops/speculation/shared/lanes_cuda.h"
#include "ops/speculation/speculative_step/speculative_step_kernels.h"
#include "ops/speculation/verify_speculative_tokens/verify_speculative_tokens_cuda.h"

namespace heddle::cuda::speculation {
namespace {

/// NextStep.
struct DeviceNextStep {
  MutableIndexRows positions, slots;           // [num_requests, num_tokens]
  MutableIndexVector kv_lens, last_page_lens;  // [num_requests]
  int64_t num_tokens;
  bool is_asked_for;

  DeviceNextStep(const NextStep& next)
      : positions(on_device(next.positions)),
        slots(on_device(next.slots)),
        kv_lens(on_device(next.kv_lens)),
        last_page_lens(on_device(next.last_page_lens)),
        num_tokens(next.num_tokens),
        is_asked_for(next.positions.data() != nullptr || next.slots.data() != nullptr ||
                     next.kv_lens.data() != nullptr || next.last_page_lens.data() != nullptr) {}

  /// Request i, whose rewind is stored.
  __device__ void store(const DeviceKvBlocks& kv, int64_t i, const KvRewind& rewind) const {
    if (!is_asked_for) return;
    const int64_t count = rewind.left;
    const int64_t blocks = count < kv.max_blocks ? count : kv.max_blocks;
    const MutableIndexVector ids = kv.ids.row(i), to = positions.row(i), slot = slots.row(i);
    // Of position cached + j: its block and its place in there, which may be the one behind the
    // last.
    int64_t b = count > 0 ? count - 1 : 0, place = count > 0 ? rewind.offset + 1 : 0;
    const int64_t cached = b * kv.block_size + place;
    int64_t id = b < blocks ? ids[b] : kNoBlock;
    for (int64_t j = 0; j < num_tokens; ++j) {
      if (place == kv.block_size) {
        place = 0;
        id = ++b < blocks ? ids[b] : kNoBlock;
      }
      to.set(j, cached + j);
      slot.set(j, id < 0 ? -1 : id * kv.block_size + place);
      ++place;
    }
    kv_lens.set(i, cached + num_tokens);
    last_page_lens.set(i, place);
  }
  __device__ void store_padding(int64_t i) const {
    if (!is_asked_for) return;
    const MutableIndexVector to = positions.row(i), slot = slots.row(i);
    for (int64_t j = 0; j < num_tokens; ++j) {
      to.set(j, -1);
      slot.set(j, -1);
    }
    kv_lens.set(i, 0);
    last_page_lens.set(i, 0);
  }
};

/// SpeculativeStepParams.
struct DeviceStep {
  DeviceVerify verify;
  DeviceNextTokens next;
  ConstIndexVector required;  // [>= num_tokens], or absent
  bool has_required;
  DeviceKvBlocks kv;
  DeviceReleases releases;
  DeviceNextStep next_step;
  int64_t num_requests, num_last_ones;
  int64_t num_rows;  // the largest of these and of the releases' rows
  bool write_prefill_rows;

  explicit DeviceStep(const SpeculativeStepParams& p)
      : verify(p.verify),
        next(p.next),
        required(on_device(p.required_logit_indices)),
        has_required(p.has_required_logit_indices),
        kv(p.kv),
        releases(p.releases),
        next_step(p.next_step),
        num_requests(p.num_requests),
        num_last_ones(p.num_last_ones),
        num_rows(
            std::max({num_requests, num_last_ones, releases.num_last_ids, releases.mask_size})),
        write_prefill_rows(p.write_prefill_rows) {}

  /// What request p, whose tokens are `range`, goes on with. last: its last accepted token, or -1.
  __device__ void store_next(int64_t p, int64_t begin, int64_t last, bool decode) const {
    const bool known = last >= 0;
    const int64_t max_drafts = verify.layout.max_drafts;
    next.sampled_tokens.set(p, known ? verify.output[last] : kNoToken);
    if (has_required) next.last_accepted_seq.set(p, known ? required[last] : -1);
    if (known && decode) {
      next.store_accepted(p, max_drafts, verify.input, begin + 1,
                          [&](int64_t s) { return begin + s < last; });
    } else if (!known || write_prefill_rows) {
      next.store_none_accepted(p, max_drafts);
    }
  }
};

// verify_speculative_tokens, prepare_next_forward_pass and rewind_kv_cache of each request, and its
// next step. One thread per request: a chain of loads (counts, starts, tokens, block ids) with
// everything else beside it. With kListed one block goes over all requests in tiles of blockDim.x,
// and sums over its threads give each request its place in the list of released blocks; else grid
// ceil(num_rows / blockDim.x).
template <bool kListed>
__global__ void __launch_bounds__(kListThreads) step_kernel(const __grid_constant__ DeviceStep p) {
  __shared__ TileSums::Shared shared;
  TileSums sums(shared);
  const int64_t num_decode = p.verify.num_decode.read();
  const int64_t num_active = p.verify.num_active(num_decode);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x; first < p.num_rows; first += stride) {
    const int64_t i = first + threadIdx.x;
    const bool active = i < num_active, decode = i < num_decode;
    KvRow row{};
    KvRewind rewind{};
    DeviceTokenRange range{};
    int64_t last = -1;
    if (active) {
      row = p.kv.load(i);
      const int64_t drafts = decode ? p.verify.layout.drafts(i) : 0;
      range = p.verify.layout.tokens(i, num_decode, drafts);
      p.kv.touch_ids(i, row);
      if (p.has_required && range.begin < range.end) touch(p.required, range.begin);
      last = p.verify.verify(range);
      rewind = p.kv.plan(row, drafts - (last < 0 ? 0 : last - range.begin));
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
  p.verify.clear_tail(num_decode, num_active, thread, stride);
}

}  // namespace

void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params) {
  const DeviceStep p(params);
  const bool listed = params.releases.listed;
  if (p.num_rows == 0 && !listed && p.verify.mask.data == nullptr) return;
  const SpeculationChoice choice = speculative_step_by_lane_groups(ctx, params);
  log_choice("speculative_step", choice);
  if (choice.kernel == SpeculationKernel::kLaneGroups) return;
  (listed ? step_kernel<true>
          : step_kernel<false>)<<<choice.blocks, choice.threads, 0, ctx.stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
