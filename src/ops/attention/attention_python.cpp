#include "heddle/ops/attention.h"

#include "bindings/array_operation.h"
#include "bindings/scalars.h"
#include "bindings/tuples.h"
#include "ops/attention/paged_python.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

/// What a heddle.AttentionOptions tells, the argument `options` of a call; None: all defaults.
AttentionOptions options_of(Call& call, nb::handle argument) {
  if (argument.is_none()) return {};
  static constinit TupleType type("AttentionOptions");
  TupleFields fields("options", argument, type);
  AttentionOptions options{.sm_scale = fields.next<std::optional<float>>("sm_scale"),
                           .causal = fields.next<bool>("causal"),
                           .window_left = fields.next<int64_t>("window_left"),
                           .logits_soft_cap = fields.next<float>("logits_soft_cap")};
  const auto theta = fields.next<std::optional<double>>("rope_theta");
  const auto scale = fields.next<double>("rope_scale");
  const int rotary_dim = fields.next<int>("rotary_dim");
  const auto llama3 = fields.next<Llama3Numbers>("llama3_scaling");
  if (theta) options.rope = rope_params(*theta, scale, rotary_dim, llama3);
  options.tree_mask = call.optional_in("tree_mask", fields.next());
  options.tree_mask_indptr = call.optional_in("tree_mask_indptr", fields.next());
  options.bundle_indptr = call.optional_in("bundle_indptr", fields.next());
  options.max_bundle = fields.next<int64_t>("max_bundle");
  return options;
}

void prefill(nb::handle o, nb::handle lse, nb::handle q, nb::handle q_indptr, nb::handle cache,
             nb::handle table, nb::handle options) {
  Call call;
  const TensorView out = call.out("o", o), sums = call.optional_out("lse", lse);
  const ConstTensorView queries = call.in("q", q), starts = call.in("q_indptr", q_indptr);
  const PagedKv kv = paged_kv(call, cache, Access::kRead);
  const PageTable pages = page_table(call, table);
  const AttentionOptions how = options_of(call, options);
  call.run([&](const ExecContext& ctx) {
    batch_prefill(ctx, out, sums, queries, starts, kv, pages, how);
  });
}

void decode(nb::handle o, nb::handle lse, nb::handle q, nb::handle cache, nb::handle table,
            nb::handle options) {
  Call call;
  const TensorView out = call.out("o", o), sums = call.optional_out("lse", lse);
  const ConstTensorView queries = call.in("q", q);
  const PagedKv kv = paged_kv(call, cache, Access::kRead);
  const PageTable pages = page_table(call, table);
  const AttentionOptions how = options_of(call, options);
  const size_t workspace_bytes =
      queries.rank() != 3 ? 0  // which batch_decode refuses
                          : batch_decode_workspace_bytes(queries.device(), queries.size(0),
                                                         queries.size(1), queries.size(2));
  call.run([&](const ExecContext& ctx) { batch_decode(ctx, out, sums, queries, kv, pages, how); },
           workspace_bytes);
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("batch_prefill", &prefill, "o"_a, "lse"_a.none(), "q"_a, "q_indptr"_a, "cache"_a, "table"_a,
        "options"_a = nb::none());
  m.def("batch_decode", &decode, "o"_a, "lse"_a.none(), "q"_a, "cache"_a, "table"_a,
        "options"_a = nb::none());
  m.def(
      "decode_bundle",
      [](const char* cache_dtype, int64_t num_q_heads, int64_t num_kv_heads, int64_t head_dim,
         int64_t window_left, int64_t kv_len, int64_t num_queries) {
        return decode_bundle(dtype_named("cache_dtype", cache_dtype), num_q_heads, num_kv_heads,
                             head_dim, window_left, kv_len, num_queries);
      },
      "cache_dtype"_a, "num_q_heads"_a, "num_kv_heads"_a, "head_dim"_a, "window_left"_a, "kv_len"_a,
      "num_queries"_a);
  bind_arrays(m, "merge_states", &merge_states, OutArray{"o"}, OptionalOutArray{"lse"},
              InArray{"o_a"}, InArray{"lse_a"}, InArray{"o_b"}, InArray{"lse_b"});
}

}  // namespace heddle::python
