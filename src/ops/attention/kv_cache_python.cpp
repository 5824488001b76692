#include "heddle/ops/kv_cache.h"

#include "bindings/scalars.h"
#include "ops/attention/paged_python.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

void init(nb::handle k_pages, nb::handle v_pages, nb::handle page_indptr, nb::handle pages,
          nb::handle last_page_len, nb::handle k, nb::handle v, nb::handle seq_indptr,
          int num_layers, int layer_idx, int page_size, nb::handle cache_dtype) {
  Call call;
  const ConstTensorView keys = call.in("k", k), values = call.in("v", v);
  const PagedKv cache = paged_kv(call, k_pages, v_pages, Access::kWrite,
                                 {num_layers, layer_idx, 0, page_size, cache_dtype}, keys);
  const PageTable table = page_table(call, page_indptr, pages, last_page_len);
  const ConstTensorView starts = call.in("seq_indptr", seq_indptr);
  call.run([&](const ExecContext& ctx) { kv_init(ctx, cache, table, keys, values, starts); });
}

void append(nb::handle k_pages, nb::handle v_pages, nb::handle page_indptr, nb::handle pages,
            nb::handle last_page_len, nb::handle k, nb::handle v, int num_layers, int layer_idx,
            int page_size, nb::handle cache_dtype) {
  Call call;
  const ConstTensorView keys = call.in("k", k), values = call.in("v", v);
  const PagedKv cache = paged_kv(call, k_pages, v_pages, Access::kWrite,
                                 {num_layers, layer_idx, 0, page_size, cache_dtype}, keys);
  const PageTable table = page_table(call, page_indptr, pages, last_page_len);
  call.run([&](const ExecContext& ctx) { kv_append(ctx, cache, table, keys, values); });
}

void rope_append(nb::handle q, nb::handle k_pages, nb::handle v_pages, nb::handle page_indptr,
                 nb::handle pages, nb::handle last_page_len, nb::handle k, nb::handle v,
                 nb::handle seq_indptr, nb::handle positions, double theta, double scale,
                 int rotary_dim, const Llama3Numbers& llama3, int num_layers, int layer_idx,
                 int page_size, nb::handle cache_dtype) {
  Call call;
  const TensorView queries = call.optional_out("q", q);
  const ConstTensorView keys = call.in("k", k), values = call.in("v", v);
  const PagedKv cache = paged_kv(call, k_pages, v_pages, Access::kWrite,
                                 {num_layers, layer_idx, 0, page_size, cache_dtype}, keys);
  const PageTable table = page_table(call, page_indptr, pages, last_page_len);
  const ConstTensorView starts = call.optional_in("seq_indptr", seq_indptr);
  const ConstTensorView places = call.optional_in("positions", positions);
  const RopeParams rope = rope_params(theta, scale, rotary_dim, llama3);
  call.run([&](const ExecContext& ctx) {
    rope_kv_append(ctx, queries, cache, table, keys, values, starts, places, rope);
  });
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  m.def("kv_init", &init, "k_pages"_a.none(), "v_pages"_a.none(), "page_indptr"_a, "pages"_a,
        "last_page_len"_a, "k"_a, "v"_a, "seq_indptr"_a, nb::kw_only(), "num_layers"_a = 1,
        "layer_idx"_a = 0, "page_size"_a = 0, "cache_dtype"_a = nb::none());
  m.def("kv_append", &append, "k_pages"_a.none(), "v_pages"_a.none(), "page_indptr"_a, "pages"_a,
        "last_page_len"_a, "k"_a, "v"_a, nb::kw_only(), "num_layers"_a = 1, "layer_idx"_a = 0,
        "page_size"_a = 0, "cache_dtype"_a = nb::none());
  constexpr RopeParams kRope;
  m.def("rope_kv_append", &rope_append, "q"_a.none(), "k_pages"_a.none(), "v_pages"_a.none(),
        "page_indptr"_a, "pages"_a, "last_page_len"_a, "k"_a, "v"_a, "seq_indptr"_a = nb::none(),
        "positions"_a = nb::none(), nb::kw_only(), "theta"_a = kRope.theta, "scale"_a = kRope.scale,
        "rotary_dim"_a = kRope.rotary_dim, "llama3_scaling"_a = nb::none(), "num_layers"_a = 1,
        "layer_idx"_a = 0, "page_size"_a = 0, "cache_dtype"_a = nb::none());
}

}  // namespace heddle::python
