#include "heddle/ops/attention.h"

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/rope_params.h"
#include "ops/attention/paged_kv_c.h"

using heddle::capi::device_of;
using heddle::capi::guard;
using heddle::capi::guard_size;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;
using heddle::capi::out_or_absent;
using heddle::capi::page_table_of;
using heddle::capi::paged_kv_of;

namespace {

heddle::AttentionOptions options_of(const heddle_attention_options* options) {
  if (options == nullptr) return {};
  heddle::AttentionOptions result{.causal = options->causal,
                                  .window_left = options->window_left,
                                  .logits_soft_cap = options->logits_soft_cap};
  if (options->has_sm_scale) result.sm_scale = options->sm_scale;
  if (options->has_rope) result.rope = heddle::capi::rope_params_of(&options->rope);
  result.tree_mask = in_or_absent("options.tree_mask", options->tree_mask);
  result.tree_mask_indptr = in_or_absent("options.tree_mask_indptr", options->tree_mask_indptr);
  result.bundle_indptr = in_or_absent("options.bundle_indptr", options->bundle_indptr);
  result.max_bundle = options->max_bundle;
  return result;
}

}  // namespace

void heddle_attention_options_init(heddle_attention_options* options) {
  const heddle::AttentionOptions defaults;
  *options = {.has_sm_scale = false,
              .sm_scale = 0.0f,
              .causal = defaults.causal,
              .window_left = defaults.window_left,
              .logits_soft_cap = defaults.logits_soft_cap,
              .has_rope = false,
              .rope = {},
              .tree_mask = nullptr,
              .tree_mask_indptr = nullptr,
              .bundle_indptr = nullptr,
              .max_bundle = defaults.max_bundle};
  heddle_rope_params_init(&options->rope);
}

heddle_status heddle_batch_prefill(heddle_context* context, DLTensor* o, DLTensor* lse,
                                   const DLTensor* q, const DLTensor* q_indptr,
                                   const heddle_paged_kv* cache, const heddle_page_table* table,
                                   const heddle_attention_options* options) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::batch_prefill(ctx, out("o", o), out_or_absent("lse", lse), in("q", q),
                          in("q_indptr", q_indptr), paged_kv_of(ctx, cache, false),
                          page_table_of(table), options_of(options));
  });
}

heddle_status heddle_batch_decode(heddle_context* context, DLTensor* o, DLTensor* lse,
                                  const DLTensor* q, const heddle_paged_kv* cache,
                                  const heddle_page_table* table,
                                  const heddle_attention_options* options) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::batch_decode(ctx, out("o", o), out_or_absent("lse", lse), in("q", q),
                         paged_kv_of(ctx, cache, false), page_table_of(table), options_of(options));
  });
}

size_t heddle_decode_bundle(DLDataType cache_dtype, int64_t num_q_heads, int64_t num_kv_heads,
                            int64_t head_dim, int64_t window_left, int64_t kv_len,
                            int64_t num_queries) {
  return guard_size([&] {
    return static_cast<size_t>(heddle::decode_bundle(heddle::dtype_of("the cache", cache_dtype),
                                                     num_q_heads, num_kv_heads, head_dim,
                                                     window_left, kv_len, num_queries));
  });
}

size_t heddle_batch_decode_workspace_bytes(DLDevice device, int64_t num_seqs, int64_t num_q_heads,
                                           int64_t head_dim) {
  return guard_size([&] {
    const auto bytes_on = [&](heddle::Device there) {
      return heddle::batch_decode_workspace_bytes(there, num_seqs, num_q_heads, head_dim);
    };
    (void)bytes_on({});  // refuses extents
    try {
      return bytes_on(device_of(device));
    } catch (const heddle::Error&) {
      return size_t{0};  // no such device
    }
  });
}

heddle_status heddle_merge_states(heddle_context* context, DLTensor* o, DLTensor* lse,
                                  const DLTensor* o_a, const DLTensor* lse_a, const DLTensor* o_b,
                                  const DLTensor* lse_b) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::merge_states(ctx, out("o", o), out_or_absent("lse", lse), in("o_a", o_a),
                         in("lse_a", lse_a), in("o_b", o_b), in("lse_b", lse_b));
  });
}
