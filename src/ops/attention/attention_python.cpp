#include "heddle/ops/attention.h"

#include "bindings/scalars.h"
#include "ops/attention/paged_python.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

/// The rotation inside, for a theta; none without.
std::optional<RopeParams> inner_rope(const std::optional<double>& theta, double scale,
                                     int rotary_dim, const Llama3Numbers& llama3) {
  if (!theta) return std::nullopt;
  return rope_params(*theta, scale, rotary_dim, llama3);
}

void prefill(nb::handle o, nb::handle lse, nb::handle q, nb::handle q_indptr, nb::handle k_pages,
             nb::handle v_pages, nb::handle page_indptr, nb::handle pages, nb::handle last_page_len,
             nb::handle tree_mask, nb::handle tree_mask_indptr, std::optional<float> sm_scale,
             bool causal, int64_t window_left, float logits_soft_cap,
             std::optional<double> rope_theta, double rope_scale, int rotary_dim,
             const Llama3Numbers& llama3, int num_layers, int layer_idx, int num_kv_heads,
             int page_size, nb::handle cache_dtype) {
  Call call;
  const TensorView out = call.out("o", o), sums = call.optional_out("lse", lse);
  const ConstTensorView queries = call.in("q", q), starts = call.in("q_indptr", q_indptr);
  const PagedKv cache =
      paged_kv(call, k_pages, v_pages, Access::kRead,
               {num_layers, layer_idx, num_kv_heads, page_size, cache_dtype}, queries);
  const PageTable table = page_table(call, page_indptr, pages, last_page_len);
  const AttentionOptions options{
      .sm_scale = sm_scale,
      .causal = causal,
      .window_left = window_left,
      .logits_soft_cap = logits_soft_cap,
      .rope = inner_rope(rope_theta, rope_scale, rotary_dim, llama3),
      .tree_mask = call.optional_in("tree_mask", tree_mask),
      .tree_mask_indptr = call.optional_in("tree_mask_indptr", tree_mask_indptr),
  };
  call.run([&](const ExecContext& ctx) {
    batch_prefill(ctx, out, sums, queries, starts, cache, table, options);
  });
}

void decode(nb::handle o, nb::handle lse, nb::handle q, nb::handle k_pages, nb::handle v_pages,
            nb::handle page_indptr, nb::handle pages, nb::handle last_page_len,
            std::optional<float> sm_scale, int64_t window_left, float logits_soft_cap,
            std::optional<double> rope_theta, double rope_scale, int rotary_dim,
            const Llama3Numbers& llama3, int num_layers, int layer_idx, int num_kv_heads,
            int page_size, nb::handle cache_dtype) {
  Call call;
  const TensorView out = call.out("o", o), sums = call.optional_out("lse", lse);
  const ConstTensorView queries = call.in("q", q);
  const PagedKv cache =
      paged_kv(call, k_pages, v_pages, Access::kRead,
               {num_layers, layer_idx, num_kv_heads, page_size, cache_dtype}, queries);
  const PageTable table = page_table(call, page_indptr, pages, last_page_len);
  const AttentionOptions options{
      .sm_scale = sm_scale,
      .window_left = window_left,
      .logits_soft_cap = logits_soft_cap,
      .rope = inner_rope(rope_theta, rope_scale, rotary_dim, llama3),
  };
  const size_t workspace_bytes =
      queries.rank() != 3 ? 0  // which batch_decode refuses
                          : batch_decode_workspace_bytes(queries.device(), queries.size(0),
                                                         queries.size(1), queries.size(2));
  call.run(
      [&](const ExecContext& ctx) { batch_decode(ctx, out, sums, queries, cache, table, options); },
      workspace_bytes);
}

void merge(nb::handle o, nb::handle lse, nb::handle o_a, nb::handle lse_a, nb::handle o_b,
           nb::handle lse_b) {
  Call call;
  const TensorView out = call.out("o", o), sums = call.optional_out("lse", lse);
  const ConstTensorView a = call.in("o_a", o_a), sums_a = call.in("lse_a", lse_a);
  const ConstTensorView b = call.in("o_b", o_b), sums_b = call.in("lse_b", lse_b);
  call.run([&](const ExecContext& ctx) { merge_states(ctx, out, sums, a, sums_a, b, sums_b); });
}

}  // namespace

void bind_attention(nb::module_& m) {
  const AttentionOptions defaults;
  constexpr RopeParams kRope;
  m.def("batch_prefill", &prefill, "o"_a, "lse"_a.none(), "q"_a, "q_indptr"_a, "k_pages"_a.none(),
        "v_pages"_a.none(), "page_indptr"_a, "pages"_a, "last_page_len"_a,
        "tree_mask"_a = nb::none(), "tree_mask_indptr"_a = nb::none(), nb::kw_only(),
        "sm_scale"_a = nb::none(), "causal"_a = defaults.causal,
        "window_left"_a = defaults.window_left, "logits_soft_cap"_a = defaults.logits_soft_cap,
        "rope_theta"_a = nb::none(), "rope_scale"_a = kRope.scale,
        "rotary_dim"_a = kRope.rotary_dim, "llama3_scaling"_a = nb::none(), "num_layers"_a = 1,
        "layer_idx"_a = 0, "num_kv_heads"_a = 0, "page_size"_a = 0, "cache_dtype"_a = nb::none());
  m.def("batch_decode", &decode, "o"_a, "lse"_a.none(), "q"_a, "k_pages"_a.none(),
        "v_pages"_a.none(), "page_indptr"_a, "pages"_a, "last_page_len"_a, nb::kw_only(),
        "sm_scale"_a = nb::none(), "window_left"_a = defaults.window_left,
        "logits_soft_cap"_a = defaults.logits_soft_cap, "rope_theta"_a = nb::none(),
        "rope_scale"_a = kRope.scale, "rotary_dim"_a = kRope.rotary_dim,
        "llama3_scaling"_a = nb::none(), "num_layers"_a = 1, "layer_idx"_a = 0,
        "num_kv_heads"_a = 0, "page_size"_a = 0, "cache_dtype"_a = nb::none());
  m.def("merge_states", &merge, "o"_a, "lse"_a.none(), "o_a"_a, "lse_a"_a, "o_b"_a, "lse_b"_a);
}

}  // namespace heddle::python
