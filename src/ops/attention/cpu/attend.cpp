#include "ops/attention/cpu/attend.h"

#include <optional>

#include "ops/attention/cpu/attention_kernels.h"

namespace heddle::cpu::attention {
namespace {

/// All but what lives as long as the call: cache, angles.
AttentionParams pack(const AttentionArgs& args) {
  AttentionParams p;
  p.o = args.o.raw();
  p.q = args.q.raw();
  p.o_token = args.o.stride(0);
  p.o_head = args.o.stride(1);
  p.q_token = args.q.stride(0);
  p.q_head = args.q.stride(1);
  if (args.lse) {
    p.lse = args.lse.data<float>();
    p.lse_token = args.lse.stride(0);
    p.lse_head = args.lse.stride(1);
  }
  p.q_dtype = args.q.dtype();
  p.kv_dtype = args.cache.dtype;
  p.group_size = args.group_size;
  p.head_dim = args.cache.head_dim;
  p.tile = tile_keys(args.cache.head_dim);
  p.stride = row_stride(args.cache.head_dim);
  p.sm_scale = args.sm_scale;
  p.soft_cap = args.options.logits_soft_cap;
  p.causal = args.options.causal;
  p.window_left = args.options.window_left;
  if (args.options.tree_mask) {
    p.trees = {args.options.tree_mask.data<int32_t>(), IndexArray(args.options.tree_mask_indptr)};
  }
  return p;
}

}  // namespace

void run(const ExecContext& ctx, const AttentionArgs& args) {
  AttentionParams params = pack(args);
  const PageWalk walk(args.cache, args.table);
  params.cache = &walk;
  params.value_distance = walk.value_distance();
  params.value_scale_distance = walk.value_scale_distance();
  std::optional<RotaryAngles> angles;
  if (args.options.rope) {
    params.angles = &angles.emplace(*args.options.rope, args.cache.head_dim);
  }
  std::optional<IndexArray> starts;
  if (args.q_indptr != nullptr) starts.emplace(*args.q_indptr);
  const AttentionItems items(params, args.cache.num_kv_heads, args.num_seqs, starts);
  parallel_for(ctx, items.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (const auto item = items.get(i)) attend(params, *item);
    }
  });
}

}  // namespace heddle::cpu::attention
