#include "heddle/ops/kv_cache.h"

#include "bindings/scalars.h"
#include "ops/attention/paged_python.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

void init(nb::handle cache, nb::handle table, nb::handle k, nb::handle v, nb::handle seq_indptr) {
  Call call;
  const ConstTensorView keys = call.in("k", k), values = call.in("v", v);
  const PagedKv kv = paged_kv(call, cache, Access::kWrite);
  const PageTable pages = page_table(call, table);
  const ConstTensorView starts = call.in("seq_indptr", seq_indptr);
  call.run([&](const ExecContext& ctx) { kv_init(ctx, kv, pages, keys, values, starts); });
}

void append(nb::handle cache, nb::handle table, nb::handle k, nb::handle v) {
  Call call;
  const ConstTensorView keys = call.in("k", k), values = call.in("v", v);
  const PagedKv kv = paged_kv(call, cache, Access::kWrite);
  const PageTable pages = page_table(call, table);
  call.run([&](const ExecContext& ctx) { kv_append(ctx, kv, pages, keys, values); });
}

void rope_append(nb::handle q, nb::handle cache, nb::handle table, nb::handle k, nb::handle v,
                 nb::handle seq_indptr, nb::handle positions, double theta, double scale,
                 int rotary_dim, const Llama3Numbers& llama3) {
  Call call;
  const TensorView queries = call.optional_out("q", q);
  const ConstTensorView keys = call.in("k", k), values = call.in("v", v);
  const PagedKv kv = paged_kv(call, cache, Access::kWrite);
  const PageTable pages = page_table(call, table);
  const ConstTensorView starts = call.optional_in("seq_indptr", seq_indptr);
  const ConstTensorView places = call.optional_in("positions", positions);
  const RopeParams rope = rope_params(theta, scale, rotary_dim, llama3);
  call.run([&](const ExecContext& ctx) {
    rope_kv_append(ctx, queries, kv, pages, keys, values, starts, places, rope);
  });
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  m.def("kv_init", &init, "cache"_a, "table"_a, "k"_a, "v"_a, "seq_indptr"_a);
  m.def("kv_append", &append, "cache"_a, "table"_a, "k"_a, "v"_a);
  constexpr RopeParams kRope;
  m.def("rope_kv_append", &rope_append, "q"_a.none(), "cache"_a, "table"_a, "k"_a, "v"_a,
        "seq_indptr"_a = nb::none(), "positions"_a = nb::none(), nb::kw_only(),
        "theta"_a = kRope.theta, "scale"_a = kRope.scale, "rotary_dim"_a = kRope.rotary_dim,
        "llama3_scaling"_a = nb::none());
}

}  // namespace heddle::python
