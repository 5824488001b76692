#include "heddle/ops/attention.h"

#include <cmath>
#include <optional>

#include "heddle/core/check.h"

#include "ops/attention/cpu/attention_kernels.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/rope/check_rope.h"
#include "ops/attention/run/run_gpu.h"

namespace heddle {
namespace {

/// Checks o, q and lse [num_tokens, num_q_heads(, head_dim)] and the options against the cache, and packs all.
cpu::attention::AttentionParams check_and_pack(const ExecContext& ctx, TensorView o, TensorView lse,
                                               ConstTensorView q, Dim& num_tokens,
                                               const PagedKv& cache,
                                               const AttentionOptions& options) {
  Dim q_heads("num_q_heads"), head_dim("head_dim", cache.head_dim);
  check_shape("q", q, {&num_tokens, &q_heads, &head_dim});
  check_shape("o", o, {&num_tokens, &q_heads, &head_dim});
  check_dtype("q", q, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("o", o, {q.dtype()});
  check_unit_stride("q", q);
  check_unit_stride("o", o);
  check_device(ctx, {{"q", q}, {"o", o}, {"lse", lse}});
  HEDDLE_CHECK(q_heads.value() % cache.num_kv_heads == 0, "q.size(1) is ", q_heads.value(),
               ", expected a multiple of the cache's num_kv_heads = ", cache.num_kv_heads);
  if (cache.head_dim > cpu::attention::kMaxHeadDim) {
    throw_error(ErrorCode::kUnsupported, "head_dim is ", cache.head_dim, ", supported: up to ",
                cpu::attention::kMaxHeadDim);
  }
  HEDDLE_CHECK(options.logits_soft_cap >= 0.0f, "options.logits_soft_cap is ",
               options.logits_soft_cap, ", expected >= 0");
  HEDDLE_CHECK(options.window_left >= -1, "options.window_left is ", options.window_left,
               ", expected >= -1");
  if (options.rope) check_rope("options.rope", *options.rope, cache.head_dim);

  cpu::attention::AttentionParams params;
  if (lse) {
    check_shape("lse", lse, {&num_tokens, &q_heads});
    check_dtype("lse", lse, {DType::kFloat32});
    params.lse = lse.data<float>();
    params.lse_token = lse.stride(0);
    params.lse_head = lse.stride(1);
  }
  params.o = o.raw();
  params.q = q.raw();
  params.o_token = o.stride(0);
  params.o_head = o.stride(1);
  params.q_token = q.stride(0);
  params.q_head = q.stride(1);
  params.q_dtype = q.dtype();
  params.kv_dtype = cache.dtype;
  params.group_size = static_cast<int>(q_heads.value() / cache.num_kv_heads);
  params.head_dim = cache.head_dim;
  params.tile = cpu::attention::tile_keys(cache.head_dim);
  params.stride = cpu::attention::row_stride(cache.head_dim);
  params.sm_scale = options.sm_scale.value_or(1.0f / std::sqrt(static_cast<float>(cache.head_dim)));
  params.soft_cap = options.logits_soft_cap;
  params.causal = options.causal;
  params.window_left = options.window_left;
  return params;
}

/// Checks the tree masks of a call with q_indptr. What they say is read on the CPU alone.
void check_trees(const ExecContext& ctx, const AttentionOptions& options, const Dim& num_seqs,
                 const cpu::IndexArray& q_indptr) {
  const ConstTensorView &mask = options.tree_mask, &indptr = options.tree_mask_indptr;
  if (!mask && !indptr) return;
  HEDDLE_CHECK(mask && indptr, "options.", mask ? "tree_mask_indptr" : "tree_mask",
               " is absent, expected both or none");
  Dim words("num words"), size("num_seqs + 1", num_seqs.value() + 1);
  check_shape("options.tree_mask", mask, {&words});
  check_dtype("options.tree_mask", mask, {DType::kInt32});
  check_unit_stride("options.tree_mask", mask);
  check_shape("options.tree_mask_indptr", indptr, {&size});
  check_dtype("options.tree_mask_indptr", indptr, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{"options.tree_mask", mask}, {"options.tree_mask_indptr", indptr}});
  if (ctx.device.type != DeviceType::kCpu) return;
  check_tree_mask_indptr(cpu::IndexArray(indptr), q_indptr, num_seqs.value(), words.value());
}

void attend_all(const ExecContext& ctx, cpu::attention::AttentionParams params,
                const PagedKv& cache, const PageTable& table, const AttentionOptions& options,
                int64_t num_seqs, std::optional<cpu::IndexArray> q_indptr) {
  const cpu::attention::PageWalk walk(cache, table);
  params.cache = &walk;
  params.value_distance = walk.value_distance();
  if (options.tree_mask) {
    params.trees = {options.tree_mask.data<int32_t>(), cpu::IndexArray(options.tree_mask_indptr)};
  }
  std::optional<cpu::attention::RotaryAngles> angles;
  if (options.rope) params.angles = &angles.emplace(*options.rope, cache.head_dim);
  const cpu::attention::AttentionItems items(params, cache.num_kv_heads, num_seqs, q_indptr);
  parallel_for(ctx, items.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (const auto item = items.get(i)) cpu::attention::attend(params, *item);
    }
  });
}

}  // namespace

void batch_prefill(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView q,
                   ConstTensorView q_indptr, const PagedKv& cache, const PageTable& table,
                   const AttentionOptions& options) {
  Dim num_seqs("num_seqs"), num_tokens("num_tokens");
  check_paged_kv(ctx, cache, table, num_seqs);
  const cpu::attention::AttentionParams params =
      check_and_pack(ctx, o, lse, q, num_tokens, cache, options);
  check_token_indptr("q_indptr", ctx, q_indptr, num_seqs, num_tokens);
  const cpu::IndexArray starts(q_indptr);
  check_trees(ctx, options, num_seqs, starts);
  if (ctx.device.type == DeviceType::kCuda) {
    return attend_on_cuda(ctx, "batch_prefill", params, cache, table, options, num_tokens.value(),
                          num_seqs.value(), q_indptr);
  }
  attend_all(ctx, params, cache, table, options, num_seqs.value(), starts);
}

void batch_decode(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView q,
                  const PagedKv& cache, const PageTable& table, const AttentionOptions& options) {
  Dim num_seqs("num_seqs");
  check_paged_kv(ctx, cache, table, num_seqs);
  const cpu::attention::AttentionParams params =
      check_and_pack(ctx, o, lse, q, num_seqs, cache, options);
  HEDDLE_CHECK(!options.tree_mask && !options.tree_mask_indptr,
               "options.tree_mask is given, but a query of batch_decode is one token alone");
  if (ctx.device.type == DeviceType::kCuda) {
    return attend_on_cuda(ctx, "batch_decode", params, cache, table, options, num_seqs.value(),
                          num_seqs.value(), {});
  }
  attend_all(ctx, params, cache, table, options, num_seqs.value(), std::nullopt);
}

}  // namespace heddle
