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

namespace {

/// The scales of a cache of f8e4m3: None, two arrays or two numbers.
struct Scales {
  nb::handle k, v;
  bool are_numbers;

  Scales(nb::handle k_scales, nb::handle v_scales)
      : k(k_scales), v(v_scales), are_numbers(is_number(k) && is_number(v)) {
    HEDDLE_CHECK(k.is_none() == v.is_none(), "k_scales and v_scales: only ",
                 k.is_none() ? "v_scales" : "k_scales", " is given");
    HEDDLE_CHECK(is_number(k) == is_number(v), "k_scales and v_scales: only ",
                 is_number(k) ? "k_scales" : "v_scales", " is a number");
  }
  static bool is_number(nb::handle scale) {
    return PyFloat_Check(scale.ptr()) || PyLong_Check(scale.ptr());
  }
  static float number(nb::handle scale) {
    return static_cast<float>(PyFloat_AsDouble(scale.ptr()));
  }
  [[nodiscard]] bool are_arrays() const { return !k.is_none() && !are_numbers; }
};

}  // namespace

PagedKv paged_kv(Call& call, nb::handle cache, Access access) {
  static constinit TupleType type("PagedKv");
  TupleFields fields("cache", cache, type);
  const nb::handle k_pages = fields.next(), v_pages = fields.next();
  HEDDLE_CHECK(k_pages.is_none() == v_pages.is_none(),
               "k_pages and v_pages: ", k_pages.is_none() ? "only v_pages" : "only k_pages",
               " is given");
  const nb::handle k_scales = fields.next();
  const Scales scales(k_scales, fields.next());
  if (!k_pages.is_none()) {
    const auto part = [&](const char* name, nb::handle array) {
      return access == Access::kWrite ? call.out(name, array) : call.in_place(name, array);
    };
    const TensorView keys = part("k_pages", k_pages), values = part("v_pages", v_pages);
    if (scales.are_numbers) {
      return PagedKv::from_pool(keys, values, Scales::number(scales.k), Scales::number(scales.v));
    }
    if (!scales.are_arrays()) return PagedKv::from_pool(keys, values);
    return PagedKv::from_pool(keys, values, part("k_scales", scales.k), part("v_scales", scales.v));
  }
  HEDDLE_CHECK(!scales.are_arrays(),
               "k_scales and v_scales are arrays, but pages with addresses hold their own");
  const char* dtype = fields.next<const char*>("dtype");
  const int num_layers = fields.next<int>("num_layers"), layer_idx = fields.next<int>("layer_idx");
  const int num_kv_heads = fields.next<int>("num_kv_heads");
  const int page_size = fields.next<int>("page_size"), head_dim = fields.next<int>("head_dim");
  const PagedKv pages =
      PagedKv::from_pointers(dtype_named("dtype", dtype), call.device(), num_layers, layer_idx,
                             num_kv_heads, page_size, head_dim);
  if (!scales.are_numbers) return pages;
  return pages.with_scales(Scales::number(scales.k), Scales::number(scales.v));
}

}  // namespace heddle::python
