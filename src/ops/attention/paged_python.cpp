#include "ops/attention/paged_python.h"

#include "bindings/scalars.h"
#include "bindings/tuples.h"

namespace heddle::python {

PageTable page_table(Call& call, nb::handle table) {
  static constinit TupleType type("PageTable");
  TupleFields fields("table", table, type);
  return {.page_indptr = call.in("page_indptr", fields.next()),
          .pages = call.in("pages", fields.next()),
          .last_page_len = call.in("last_page_len", fields.next())};
}

PagedKv paged_kv(Call& call, nb::handle cache, Access access) {
  static constinit TupleType type("PagedKv");
  TupleFields fields("cache", cache, type);
  const nb::handle k_pages = fields.next(), v_pages = fields.next();
  HEDDLE_CHECK(k_pages.is_none() == v_pages.is_none(),
               "k_pages and v_pages: ", k_pages.is_none() ? "only v_pages" : "only k_pages",
               " is given");
  if (!k_pages.is_none()) {
    const bool writes = access == Access::kWrite;
    const TensorView keys =
        writes ? call.out("k_pages", k_pages) : call.in_place("k_pages", k_pages);
    const TensorView values =
        writes ? call.out("v_pages", v_pages) : call.in_place("v_pages", v_pages);
    return PagedKv::from_pool(keys, values);
  }
  const char* dtype = fields.next<const char*>("dtype");
  const int num_layers = fields.next<int>("num_layers"), layer_idx = fields.next<int>("layer_idx");
  const int num_kv_heads = fields.next<int>("num_kv_heads");
  const int page_size = fields.next<int>("page_size"), head_dim = fields.next<int>("head_dim");
  return PagedKv::from_pointers(dtype_named("dtype", dtype), call.device(), num_layers, layer_idx,
                                num_kv_heads, page_size, head_dim);
}

}  // namespace heddle::python
