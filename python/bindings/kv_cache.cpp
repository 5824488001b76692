#include "heddle/ops/kv_cache.h"

#include "families.h"
#include "paged.h"
#include "scalars.h"

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

}  // namespace

void bind_kv_cache(nb::module_& m) {
  m.def("kv_init", &init, "k_pages"_a.none(), "v_pages"_a.none(), "page_indptr"_a, "pages"_a,
        "last_page_len"_a, "k"_a, "v"_a, "seq_indptr"_a, nb::kw_only(), "num_layers"_a = 1,
        "layer_idx"_a = 0, "page_size"_a = 0, "cache_dtype"_a = nb::none());
  m.def("kv_append", &append, "k_pages"_a.none(), "v_pages"_a.none(), "page_indptr"_a, "pages"_a,
        "last_page_len"_a, "k"_a, "v"_a, nb::kw_only(), "num_layers"_a = 1, "layer_idx"_a = 0,
        "page_size"_a = 0, "cache_dtype"_a = nb::none());
}

}  // namespace heddle::python
