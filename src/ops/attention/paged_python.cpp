#include "ops/attention/paged_python.h"

#include "bindings/scalars.h"

namespace heddle::python {

PagedKv paged_kv(Call& call, nb::handle k_pages, nb::handle v_pages, Access access,
                 const PageLayout& layout, const ConstTensorView& like) {
  HEDDLE_CHECK(k_pages.is_none() == v_pages.is_none(),
               "k_pages and v_pages: ", k_pages.is_none() ? "only v_pages" : "only k_pages",
               " is given");
  if (!k_pages.is_none()) {
    if (access == Access::kWrite) {
      return PagedKv::from_pool(call.out("k_pages", k_pages), call.out("v_pages", v_pages));
    }
    return PagedKv::from_pool(call.in_place("k_pages", k_pages), call.in_place("v_pages", v_pages));
  }
  HEDDLE_CHECK(like.rank() == 3, "q or k has rank ", like.rank(), ", expected 3");
  const DType dtype = dtype_or("cache_dtype", layout.cache_dtype, like.dtype());
  const int num_kv_heads =
      layout.num_kv_heads == 0 ? static_cast<int>(like.size(1)) : layout.num_kv_heads;
  return PagedKv::from_pointers(dtype, call.device(), layout.num_layers, layout.layer_idx,
                                num_kv_heads, layout.page_size, static_cast<int>(like.size(2)));
}

PageTable page_table(Call& call, nb::handle page_indptr, nb::handle pages,
                     nb::handle last_page_len) {
  return {.page_indptr = call.in("page_indptr", page_indptr),
          .pages = call.in("pages", pages),
          .last_page_len = call.in("last_page_len", last_page_len)};
}

}  // namespace heddle::python
