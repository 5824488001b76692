#include <limits>

#include "heddle/core/check.h"

#include "ops/attention/prefill/prefill_params.h"

namespace heddle::cuda::attention {

void launch_prefill(const AttentionKernelParams& call, const RotaryFrequencies* rope,
                    const AttentionLaunch& launch) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  HEDDLE_CHECK(call.num_tokens * call.group_size <= kMaxInt - prefill_rows(0, true) &&
                   num_prefill_blocks(call, true) <= kMaxInt,
               "batch_prefill: q has ", call.num_tokens, " tokens of ",
               int64_t{call.num_kv_heads} * call.group_size,
               " heads, expected fewer than 2^31 rows of a kv head and of 2^31 blocks");
  PrefillParams p;
  p.call = call;
  p.by_group_size = Divisor(static_cast<uint32_t>(call.group_size));
  p.by_kv_heads = Divisor(static_cast<uint32_t>(call.num_kv_heads));
  p.page_entry_step = call.kv.pages.stride * (call.kv.pages.is_wide ? 8 : 4);
  p.is_transformed = call.soft_cap > 0.0f || !(call.sm_scale > 0.0f);
  p.scale = p.is_transformed ? 1.0f : call.sm_scale;
  p.scale_log2 = p.scale * kLog2E;
  if (launch.dtype == DType::kFloat16) return launch_prefill_of<half>(p, rope, launch);
  launch_prefill_of<bfloat16>(p, rope, launch);
}

}  // namespace heddle::cuda::attention
