#include "ops/attention/run/run_cuda.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"

#include "core/kernel_log.h"
#include "ops/attention/decode/exchange.h"
#include "ops/attention/decode/launch.h"
#include "ops/attention/paged/aligned_rows.h"
#include "ops/attention/paged/page_validate.h"
#include "ops/attention/prefill/launch.h"
#include "ops/attention/rope/rotary_frequencies.h"
#include "ops/attention/run/select_kernel.h"

namespace heddle::cuda::attention {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void check_dtypes(const ExecContext& ctx, const char* op, const AttentionArgs& args) {
  if (args.q.dtype() == DType::kFloat32) {
    throw_error(ErrorCode::kUnsupported, op, ": q is f32, supported on ", ctx.device,
                ": f16, bf16");
  }
  const bool has_codes = args.cache.dtype == DType::kFloat8E4M3;
  if (args.cache.dtype != args.q.dtype() && !has_codes) {
    throw_error(ErrorCode::kUnsupported, op, ": the cache is ", args.cache.dtype, ", supported on ",
                ctx.device, ": the dtype of q, ", args.q.dtype(), ", or f8e4m3");
  }
  if (has_codes && args.options.rope) {
    throw_error(ErrorCode::kUnsupported, op, ": options.rope with a cache of f8e4m3, supported on ",
                ctx.device, ": keys that rope_kv_append has rotated");
  }
}

/// Whether the context has what blocks share units through.
bool has_scratch(const ExecContext& ctx, const AttentionCall& call) {
  if (ctx.workspace == nullptr || !kDecodeCounters.fits(ctx.exchange.size())) return false;
  return ctx.workspace->has_room<float>(partial_floats(call, ctx.info.num_sms));
}

/// Every question about alignment is asked here.
AttentionCall describe(const ExecContext& ctx, const AttentionArgs& args) {
  const PagedKv& cache = args.cache;
  const auto element = static_cast<int64_t>(size_of(args.q.dtype()));
  AttentionCall call;
  call.is_decode = args.q_indptr == nullptr;
  call.num_tokens = args.num_tokens;
  call.num_seqs = args.num_seqs;
  call.table_keys = args.table.pages.size(0) * cache.page_size;
  call.page_size = cache.page_size;
  call.num_kv_heads = cache.num_kv_heads;
  call.group_size = args.group_size;
  call.head_dim = cache.head_dim;
  call.has_pool = cache.num_pages > 0;
  call.is_q_aligned = begin_aligned(args.q) && begin_aligned(args.o) &&
                      cache.head_dim * element % kVectorBytes == 0;
  call.is_kv_aligned = has_aligned_rows(cache);
  call.has_codes = cache.dtype == DType::kFloat8E4M3;
  call.rotates = args.options.rope.has_value();
  call.transforms_scores = args.options.logits_soft_cap > 0.0f || !(args.sm_scale > 0.0f);
  call.has_tree_masks = static_cast<bool>(args.options.tree_mask);
  call.num_bundles = args.num_bundles;
  call.max_bundle = args.max_bundle;
  call.has_scratch = call.is_decode && has_scratch(ctx, call);
  return call;
}

void pack(const ExecContext& ctx, const AttentionArgs& args, const AttentionCall& call,
          AttentionCallParams& p) {
  p.kv = PagedKvParams(ctx, args.cache, args.table, call.is_kv_aligned);
  p.q = args.q.raw();
  p.q_token = args.q.stride(0);
  p.q_head = args.q.stride(1);
  p.o = args.o.raw();
  p.o_token = args.o.stride(0);
  p.o_head = args.o.stride(1);
  if (args.lse) {
    p.lse = args.lse.data<float>();
    p.lse_token = args.lse.stride(0);
    p.lse_head = args.lse.stride(1);
  }
  if (args.q_indptr != nullptr) p.q_indptr = ConstIndexVector(*args.q_indptr);
  if (args.options.tree_mask) {
    p.tree_mask = reinterpret_cast<const uint32_t*>(args.options.tree_mask.raw());
    p.tree_mask_indptr = ConstIndexVector(args.options.tree_mask_indptr);
    p.num_mask_words = args.options.tree_mask.size(0);
  }
  p.num_tokens = args.num_tokens;
  p.num_seqs = static_cast<int32_t>(args.num_seqs);
  p.num_kv_heads = args.cache.num_kv_heads;
  p.group_size = args.group_size;
  p.head_dim = args.cache.head_dim;
  p.window_left = static_cast<int32_t>(std::min(args.options.window_left, kMaxInt));
  p.sm_scale = args.sm_scale;
  p.soft_cap = args.options.logits_soft_cap;
  p.causal = args.options.causal;
  p.is_q_aligned = call.is_q_aligned;
}

/// The rest of what decode takes. Memory that blocks share units through is taken in the caller's
/// scope.
void pack_decode(const ExecContext& ctx, const AttentionCall& call, const AttentionChoice& choice,
                 DecodeLaunchParams& p) {
  if (choice.shares_units) {
    const size_t floats = partial_floats(call, ctx.info.num_sms);
    p.partials = ctx.workspace->take<float>(floats).data();
    p.counters = kDecodeCounters.words_in<uint32_t>(ctx.exchange);
  }
  p.blocks_per_sm = static_cast<uint32_t>(choice.blocks_per_sm);
  p.cluster_size = static_cast<uint32_t>(choice.cluster_size);
  p.num_units = static_cast<uint32_t>(choice.units_per_seq);
  p.unit_rows = choice.rows;
  p.partial_pairs = decode_row_pairs(call.group_size * call.max_bundle);
  p.by_kv_heads = FastDivisor(static_cast<uint32_t>(call.num_kv_heads));
  p.by_group_size = FastDivisor(static_cast<uint32_t>(call.group_size));
  p.max_bundle = call.max_bundle;
  p.can_start_on_stale_table = choice.can_start_on_stale_table;
  p.has_whole_tiles = choice.has_whole_tiles;
}

/// Params: DecodeLaunchParams, RotatingDecodeParams or CodeDecodeParams.
template <class Params>
void run_decode(const ExecContext& ctx, const AttentionArgs& args, const AttentionCall& call,
                const AttentionChoice& choice, const AttentionLaunch& launch) {
  std::optional<Workspace::Scope> scope;
  if (choice.shares_units) scope.emplace(*ctx.workspace);
  Params p;
  pack(ctx, args, call, p);
  pack_decode(ctx, call, choice, p);
  if (call.num_bundles > 0) {
    p.bundle_indptr = ConstIndexVector(args.options.bundle_indptr);
    p.num_seqs = static_cast<int32_t>(call.num_bundles);
  }
  if constexpr (std::is_same_v<Params, RotatingDecodeParams>) {
    p.rope = rotary_frequencies(*args.options.rope, call.head_dim);
  }
  if constexpr (std::is_same_v<Params, CodeDecodeParams>) {
    p.scales = KvScaleParams(args.cache);
    p.is_bfloat16 = launch.dtype == DType::kBFloat16;
  }
  const decode::Grid grid{choice.dim, choice.rows / kDecodeRowTile,
                          static_cast<int>(choice.num_blocks)};
  decode::launch(p, grid, launch);
}

void check_prefill_size(const AttentionCall& call) {
  // As many as the general kernel would have, so that a call's alignment does not decide.
  const int rows = prefill_rows(call.head_dim, true);
  const int64_t all_rows = call.num_tokens * call.group_size;
  const int64_t blocks = (all_rows / rows + call.num_seqs) * call.num_kv_heads;
  HEDDLE_CHECK(all_rows <= kMaxInt - prefill_rows(0, true) && blocks <= kMaxInt,
               "batch_prefill: q has ", call.num_tokens, " tokens of ",
               int64_t{call.num_kv_heads} * call.group_size,
               " heads, expected fewer than 2^31 rows of a kv head and of 2^31 blocks");
}

void run_prefill(const ExecContext& ctx, const AttentionArgs& args, const AttentionCall& call,
                 const AttentionChoice& choice, const AttentionLaunch& launch) {
  check_prefill_size(call);
  PrefillParams p;
  pack(ctx, args, call, p.call);
  p.by_group_size = FastDivisor(static_cast<uint32_t>(call.group_size));
  p.by_kv_heads = FastDivisor(static_cast<uint32_t>(call.num_kv_heads));
  p.is_transformed = call.transforms_scores;
  const bool is_sm90 = choice.route == AttentionRoute::kPrefillSm90;
  if (choice.reads_codes && !is_sm90 && !args.cache.has_token_scales) {
    p.call.sm_scale *= args.cache.k_scale;  // one scale of all keys is a factor of all scores
  }
  p.scale = p.is_transformed ? 1.0f : p.call.sm_scale;
  p.scale_log2 = p.scale * kLog2E;
  if (is_sm90) {
    const PrefillSm90Params sm90{p, static_cast<int>(choice.num_blocks),
                                 kPrefillCounter.words_in<uint32_t>(ctx.exchange)};
    if (!choice.reads_codes) return prefill::launch_sm90(sm90, choice.dim, launch);
    return prefill::launch_sm90(CodePrefillSm90Params{sm90, KvScaleParams(args.cache)}, choice.dim,
                                launch);
  }
  if (choice.reads_codes) {
    return prefill::launch(p, KvScaleParams(args.cache), choice.dim, choice.num_blocks, launch);
  }
  if (choice.route == AttentionRoute::kPrefill) {
    return prefill::launch(p, NoRotation{}, choice.dim, choice.num_blocks, launch);
  }
  const RotaryFrequencies rotation =
      choice.rotates ? rotary_frequencies(*args.options.rope, call.head_dim) : RotaryFrequencies{};
  prefill::launch(p, rotation, choice.dim, choice.num_blocks, launch);
}

}  // namespace

void run(const ExecContext& ctx, const char* op, const AttentionArgs& args) {
  check_dtypes(ctx, op, args);
  if (args.num_seqs == 0 || args.num_tokens == 0) return;
  if (validating()) {
    const ConstTensorView starts = args.q_indptr != nullptr ? *args.q_indptr : ConstTensorView{};
    validate_tables(ctx, args.cache, args.table, args.num_seqs, "q_indptr", starts, args.num_tokens,
                    args.options);
  }
  HEDDLE_CHECK(args.num_seqs <= kMaxInt, "num_seqs is ", args.num_seqs, ", expected below 2^31");
  const AttentionCall call = describe(ctx, args);
  const AttentionChoice choice = select_attention_kernel(call, ctx.info);
  log_choice(op, choice);
  const AttentionLaunch launch{args.q.dtype(), ctx.info, ctx.device.index, ctx.stream};
  if (choice.route != AttentionRoute::kDecode) return run_prefill(ctx, args, call, choice, launch);
  if (choice.rotates) {
    return run_decode<RotatingDecodeParams>(ctx, args, call, choice, launch);
  }
  if (choice.reads_codes) return run_decode<CodeDecodeParams>(ctx, args, call, choice, launch);
  run_decode<DecodeLaunchParams>(ctx, args, call, choice, launch);
}

size_t decode_workspace_bytes(Device device, int64_t num_seqs, int64_t num_q_heads,
                              int64_t head_dim) {
  return Workspace::bytes_for<float>(max_partial_floats(
      num_seqs, num_q_heads, static_cast<int>(head_dim), query_device(device).num_sms));
}

}  // namespace heddle::cuda::attention
