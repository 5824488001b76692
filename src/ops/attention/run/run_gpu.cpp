#include "ops/attention/run/run_gpu.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "heddle/config.h"
#include "heddle/core/validate.h"

#include "ops/attention/decode/decode_params.h"
#include "ops/attention/decode/exchange.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/rope/rotary_frequencies.h"

namespace heddle {
namespace {

using cuda::attention::AttentionKernelParams;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void check_dtypes(const ExecContext& ctx, const char* op,
                  const cpu::attention::AttentionParams& params) {
  if (params.q_dtype == DType::kFloat32) {
    throw_error(ErrorCode::kUnsupported, op, ": q is f32, supported on ", ctx.device,
                ": f16, bf16");
  }
  if (params.kv_dtype != params.q_dtype) {
    throw_error(ErrorCode::kUnsupported, op, ": the cache is ", params.kv_dtype, ", supported on ",
                ctx.device, ": the dtype of q, ", params.q_dtype);
  }
}

AttentionKernelParams pack(const cpu::attention::AttentionParams& params, const PagedKv& cache,
                           const PageTable& table, const AttentionOptions& options,
                           int64_t num_tokens, int64_t num_seqs, const ConstTensorView& q_indptr) {
  AttentionKernelParams p;
  p.kv = cuda::attention::PagedKvParams(cache, table);
  p.q = params.q;
  p.o = params.o;
  p.lse = params.lse;
  p.q_token = params.q_token;
  p.q_head = params.q_head;
  p.o_token = params.o_token;
  p.o_head = params.o_head;
  p.lse_token = params.lse_token;
  p.lse_head = params.lse_head;
  p.q_indptr = cuda::attention::IndexParams(q_indptr);
  if (options.tree_mask) {
    p.tree_mask = reinterpret_cast<const uint32_t*>(options.tree_mask.raw());
    p.tree_mask_indptr = cuda::attention::IndexParams(options.tree_mask_indptr);
  }
  p.num_tokens = num_tokens;
  p.num_pages = table.pages.size(0);
  HEDDLE_CHECK(num_seqs <= kMaxInt, "num_seqs is ", num_seqs, ", expected below 2^31");
  p.num_seqs = static_cast<int32_t>(num_seqs);
  p.num_kv_heads = cache.num_kv_heads;
  p.group_size = params.group_size;
  p.head_dim = params.head_dim;
  p.window_left = static_cast<int32_t>(std::min(params.window_left, kMaxInt));
  p.sm_scale = params.sm_scale;
  p.soft_cap = params.soft_cap;
  p.causal = params.causal;
  const int64_t element = static_cast<int64_t>(size_of(params.q_dtype));
  const int64_t steps = p.q_token | p.q_head | p.o_token | p.o_head | p.head_dim;
  p.is_q_aligned =
      (reinterpret_cast<intptr_t>(p.q) | reinterpret_cast<intptr_t>(p.o) | steps * element) % 16 ==
      0;
  return p;
}

/// What blocks share sequences through: the context's exchange and workspace, where there is room in both.
void share_sequences(const ExecContext& ctx, AttentionKernelParams& p,
                     std::optional<Workspace::Scope>& scope) {
  constexpr cuda::ExchangeRange kCounters = cuda::attention::kDecodeCounters;
  if (ctx.workspace == nullptr || !kCounters.fits(ctx.exchange.size())) return;
  const size_t floats = cuda::attention::decode_partial_floats(
      p.num_seqs, p.num_kv_heads, p.group_size, p.head_dim, ctx.info.num_sms);
  if (!ctx.workspace->has_room<float>(floats)) return;
  scope.emplace(*ctx.workspace);
  p.partials = ctx.workspace->take<float>(floats).data();
  p.counters = kCounters.words_in<uint32_t>(ctx.exchange);
  p.num_counters = static_cast<int32_t>(kCounters.bytes / sizeof(uint32_t));
}

}  // namespace

size_t batch_decode_workspace_bytes(Device device, int64_t num_seqs, int64_t num_q_heads,
                                    int64_t head_dim) {
  if constexpr (kWithCuda) {
    if (device.type != DeviceType::kCuda) return 0;
    return Workspace::bytes_for<float>(cuda::attention::max_decode_partial_floats(
        num_seqs, num_q_heads, static_cast<int>(head_dim), query_device(device).num_sms));
  }
  return 0;
}

void attend_on_cuda(const ExecContext& ctx, const char* op,
                    const cpu::attention::AttentionParams& params, const PagedKv& cache,
                    const PageTable& table, const AttentionOptions& options, int64_t num_tokens,
                    int64_t num_seqs, const ConstTensorView& q_indptr) {
  if constexpr (kWithCuda) {
    check_dtypes(ctx, op, params);
    if (num_seqs == 0 || num_tokens == 0) return;
    if (validating()) {
      cuda::attention::validate_tables(ctx, cache, table, num_seqs, "q_indptr", q_indptr,
                                       num_tokens, options);
    }
    AttentionKernelParams p = pack(params, cache, table, options, num_tokens, num_seqs, q_indptr);
    std::optional<cuda::RotaryFrequencies> rope;
    if (options.rope) rope = rotary_frequencies(*options.rope, cache.head_dim);
    const cuda::attention::AttentionLaunch launch{params.q_dtype, ctx.info, ctx.device.index,
                                                  ctx.stream};
    if (q_indptr) return cuda::attention::launch_prefill(p, rope ? &*rope : nullptr, launch);
    std::optional<Workspace::Scope> scope;
    share_sequences(ctx, p, scope);
    cuda::attention::launch_decode(p, rope ? &*rope : nullptr, launch);
  } else {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

}  // namespace heddle
