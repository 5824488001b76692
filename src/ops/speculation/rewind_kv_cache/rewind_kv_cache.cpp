#include <algorithm>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/speculation.h"

#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/speculation/call/rewind_kv_cache_kernels.h"
#include "ops/speculation/shared/check_speculation.h"
#include "ops/speculation/shared/validate_blocks.h"

namespace heddle {
namespace {

RewindParams make_params(const ReleasedBlocks& released, const KvBlockState& state,
                         const ConstTensorView& accepted_counts,
                         const ConstTensorView& prefill_status, const Drafts& drafts,
                         int64_t block_size_tokens, const Count& num_active) {
  const int64_t num_requests = accepted_counts.size(0);
  return {.kv = KvBlocks(state, block_size_tokens),
          .releases = Releases(released),
          .accepted_counts = cpu::IndexArray(accepted_counts),
          .prefill_status = cpu::IndexArray(prefill_status),
          .layout = DraftLayout(drafts, 0),  // no tokens here
          .num_active = cpu::CountReader(num_active, num_requests),
          .num_requests = num_requests};
}

/// What is to be validated, in host memory.
struct Requests {
  RewindParams params;
  Drafts drafts;
};

void validate(const Requests& requests) {
  const auto& [params, drafts] = requests;
  cpu::validate_count("num_active", params.num_active, "num_requests");
  const int64_t num_active = params.num_active.read();
  int64_t num_decode = num_active;
  while (num_decode > 0 && params.prefill_status[num_decode - 1] == 1) --num_decode;
  validate_drafts(drafts, std::min(num_decode, drafts.indptr.size(0) - 1));
  for (int64_t i = 0; i < num_active; ++i) {
    if (params.prefill_status[i] != 1) {
      const int64_t accepted = params.accepted_counts[i], most = params.layout.drafts(i);
      HEDDLE_CHECK(accepted >= 0 && accepted <= most, "accepted_counts[", i, "] is ", accepted,
                   ", expected 0 to its drafts = ", most);
    }
    validate_blocks(params.kv, i, params.rejected(i));
  }
}

}  // namespace

void rewind_kv_cache(const ExecContext& ctx, const ReleasedBlocks& released,
                     const KvBlockState& state, ConstTensorView accepted_counts,
                     ConstTensorView prefill_status, const Drafts& drafts,
                     int64_t block_size_tokens, const Count& num_active) {
  check_has_kernels(ctx, "rewind_kv_cache");
  check_index_rows(ctx, "accepted_counts", accepted_counts, Dim("num_requests", 0));
  const Dim requests("num_requests", accepted_counts.size(0));
  check_index_rows(ctx, "prefill_status", prefill_status, requests);
  check_drafts(ctx, drafts, 0);
  check_count("num_active", ctx, num_active, requests.value());
  check_rewind(ctx, released, state, block_size_tokens, requests);

  if (validating()) {
    check_on_host(
        ctx,
        [&](auto& host) {
          const Drafts host_drafts = drafts_on_host(host, drafts);
          return Requests{
              make_params({}, state_on_host(host, state), host(accepted_counts),
                          host(prefill_status), host_drafts, block_size_tokens, host(num_active)),
              host_drafts};
        },
        validate);
  }
  const RewindParams params = make_params(released, state, accepted_counts, prefill_status, drafts,
                                          block_size_tokens, num_active);
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::speculation::rewind_kv_cache(ctx, params);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("rewind_kv_cache");
    cuda::speculation::rewind_kv_cache(ctx, params);
  }
}

}  // namespace heddle
