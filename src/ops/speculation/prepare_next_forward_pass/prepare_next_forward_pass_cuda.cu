#include "cuda/check.h"

#include "core/kernel_log.h"
#include "core/math.h"
#include "ops/speculation/prepare_next_forward_pass/prepare_next_forward_pass_cuda.h"
#include "ops/speculation/shared/lanes_cuda.h"

namespace heddle::cuda::speculation {
namespace {

/// PrepareParams.
struct DevicePrepare {
  DeviceNextTokens next;
  ConstIndexVector output, required, last_ones;
  DeviceMask<const std::byte> mask;
  ConstIndexVector input;
  DeviceDrafts layout;
  DeviceCount num_decode;
  int64_t num_rows, num_accepted_rows;
  bool write_prefill_rows;

  explicit DevicePrepare(const PrepareParams& p)
      : next(p.next),
        output(on_device(p.output_tokens)),
        required(on_device(p.required_logit_indices)),
        last_ones(on_device(p.last_one_indices)),
        mask(p.accepted_tokens_mask),
        input(on_device(p.input_tokens)),
        layout(p.layout),
        num_decode(on_device(p.num_decode)),
        num_rows(p.num_rows),
        num_accepted_rows(p.num_accepted_rows),
        write_prefill_rows(p.write_prefill_rows) {}
};

// What row p goes on with: output and required at last_ones[p], and the drafts whose mask is set.
// One thread per row; grid and block: select_speculation_kernel.
__global__ void __launch_bounds__(kGeneralThreads)
    prepare_kernel(const __grid_constant__ DevicePrepare p) {
  const int64_t row = int64_t{blockIdx.x} * kGeneralThreads + threadIdx.x;
  if (row >= p.num_rows) return;
  const int64_t last = p.last_ones[row], num_decode = p.num_decode.read();
  const bool known = last >= 0 && last < p.layout.num_tokens;
  p.next.sampled_tokens.set(row, known ? p.output[last] : kNoToken);
  p.next.last_accepted_seq.set(row, known ? p.required[last] : -1);
  if (row >= p.num_accepted_rows) return;
  if (known && row < num_decode) {
    const DeviceTokenRange range = p.layout.tokens(row, num_decode, p.layout.drafts(row));
    const int64_t first = range.begin + 1;
    p.next.store_accepted(row, p.layout.max_drafts, p.input, first,
                          [&](int64_t s) { return first + s < range.end && p.mask[first + s]; });
  } else if (!known || p.write_prefill_rows) {
    p.next.store_none_accepted(row, p.layout.max_drafts);
  }
}

}  // namespace

void prepare_next_forward_pass(const ExecContext& ctx, const PrepareParams& params) {
  if (params.num_rows == 0) return;
  const SpeculationChoice choice = prepare_next_forward_pass_by_lane_groups(ctx, params);
  log_choice("prepare_next_forward_pass", choice);
  if (choice.kernel == SpeculationKernel::kLaneGroups) return;
  prepare_kernel<<<choice.blocks, choice.threads, 0, ctx.stream>>>(DevicePrepare(params));
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::speculation
