#include "ops/attention/paged_python.h"

#include <optional>

#include <nanobind/stl/optional.h>

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

/// The scales of a cache of f8e4m3: two arrays, two numbers or None.
struct Scales {
  nb::handle k_scales, v_scales;
  std::optional<float> k_scale, v_scale;

  explicit Scales(TupleFields& fields)
      : k_scales(fields.next()),
        v_scales(fields.next()),
        k_scale(fields.next<std::optional<float>>("k_scale")),
        v_scale(fields.next<std::optional<float>>("v_scale")) {
    HEDDLE_CHECK(k_scales.is_none() == v_scales.is_none(), "k_scales and v_scales: only ",
                 k_scales.is_none() ? "v_scales" : "k_scales", " is given");
    HEDDLE_CHECK(k_scale.has_value() == v_scale.has_value(), "k_scale and v_scale: only ",
                 k_scale ? "k_scale" : "v_scale", " is given");
    HEDDLE_CHECK(!are_arrays() || !are_numbers(),
                 "k_scales and v_scales are given and also k_scale and v_scale, expected one pair");
  }
  [[nodiscard]] bool are_arrays() const { return !k_scales.is_none(); }
  [[nodiscard]] bool are_numbers() const { return k_scale.has_value(); }
};

}  // namespace

PagedKv paged_kv(Call& call, nb::handle cache, Access access) {
  static constinit TupleType type("PagedKv");
  TupleFields fields("cache", cache, type);
  const nb::handle k_pages = fields.next(), v_pages = fields.next();
  HEDDLE_CHECK(k_pages.is_none() == v_pages.is_none(),
               "k_pages and v_pages: ", k_pages.is_none() ? "only v_pages" : "only k_pages",
               " is given");
  const Scales scales(fields);
  if (!k_pages.is_none()) {
    const auto part = [&](const char* name, nb::handle array) {
      return access == Access::kWrite ? call.out(name, array) : call.in_place(name, array);
    };
    const TensorView keys = part("k_pages", k_pages), values = part("v_pages", v_pages);
    if (scales.are_numbers()) {
      return PagedKv::from_pool(keys, values, *scales.k_scale, *scales.v_scale);
    }
    if (!scales.are_arrays()) return PagedKv::from_pool(keys, values);
    const TensorView key_scales = part("k_scales", scales.k_scales);
    return PagedKv::from_pool(keys, values, key_scales, part("v_scales", scales.v_scales));
  }
  HEDDLE_CHECK(!scales.are_arrays(),
               "k_scales and v_scales are given, but pages with addresses hold their own");
  const char* dtype = fields.next<const char*>("dtype");
  const int num_layers = fields.next<int>("num_layers"), layer_idx = fields.next<int>("layer_idx");
  const int num_kv_heads = fields.next<int>("num_kv_heads");
  const int page_size = fields.next<int>("page_size"), head_dim = fields.next<int>("head_dim");
  const PagedKv pages =
      PagedKv::from_pointers(dtype_named("dtype", dtype), call.device(), num_layers, layer_idx,
                             num_kv_heads, page_size, head_dim);
  return scales.are_numbers() ? pages.with_scales(*scales.k_scale, *scales.v_scale) : pages;
}

}  // namespace heddle::python
