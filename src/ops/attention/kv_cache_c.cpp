#include "heddle/ops/kv_cache.h"

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/rope_params.h"
#include "ops/attention/paged_kv_c.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out_or_absent;
using heddle::capi::page_table_of;
using heddle::capi::paged_kv_of;

void heddle_paged_kv_init(heddle_paged_kv* cache) {
  *cache = {.k = nullptr,
            .v = nullptr,
            .dtype = {kDLFloat, 32, 1},
            .num_layers = 1,
            .layer_idx = 0,
            .num_kv_heads = 0,
            .page_size = 0,
            .head_dim = 0,
            .k_scales = nullptr,
            .v_scales = nullptr,
            .k_scale = 0.0f,
            .v_scale = 0.0f};
}

heddle_status heddle_kv_init(heddle_context* context, const heddle_paged_kv* cache,
                             const heddle_page_table* table, const DLTensor* k, const DLTensor* v,
                             const DLTensor* seq_indptr) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::kv_init(ctx, paged_kv_of(ctx, cache, true), page_table_of(table), in("k", k),
                    in("v", v), in("seq_indptr", seq_indptr));
  });
}

heddle_status heddle_kv_append(heddle_context* context, const heddle_paged_kv* cache,
                               const heddle_page_table* table, const DLTensor* k,
                               const DLTensor* v) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::kv_append(ctx, paged_kv_of(ctx, cache, true), page_table_of(table), in("k", k),
                      in("v", v));
  });
}

heddle_status heddle_rope_kv_append(heddle_context* context, DLTensor* q,
                                    const heddle_paged_kv* cache, const heddle_page_table* table,
                                    const DLTensor* k, const DLTensor* v,
                                    const DLTensor* seq_indptr, const DLTensor* positions,
                                    const heddle_rope_params* rope) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::rope_kv_append(
        ctx, out_or_absent("q", q), paged_kv_of(ctx, cache, true), page_table_of(table), in("k", k),
        in("v", v), in_or_absent("seq_indptr", seq_indptr), in_or_absent("positions", positions),
        heddle::capi::rope_params_of(rope));
  });
}
