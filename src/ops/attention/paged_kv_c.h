#pragma once

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"

#include "capi/convert.h"

namespace heddle::capi {

/// For an operation that only reads the pages, unless it `writes`.
inline PagedKv paged_kv_of(const ExecContext& ctx, const heddle_paged_kv* cache, bool writes) {
  const heddle_paged_kv& c = required("cache", cache);
  const bool has_tensors = c.k_scales != nullptr || c.v_scales != nullptr;
  const bool has_numbers = c.k_scale != 0.0f || c.v_scale != 0.0f;
  HEDDLE_CHECK(!has_tensors || !has_numbers,
               "cache has k_scales and v_scales and also k_scale and v_scale, expected one pair");
  if (c.k != nullptr || c.v != nullptr) {
    const auto part = writes ? out : in_place;
    const TensorView keys = part("cache.k", c.k), values = part("cache.v", c.v);
    if (has_numbers) return PagedKv::from_pool(keys, values, c.k_scale, c.v_scale);
    if (!has_tensors) return PagedKv::from_pool(keys, values);
    const TensorView key_scales = part("cache.k_scales", c.k_scales);
    return PagedKv::from_pool(keys, values, key_scales, part("cache.v_scales", c.v_scales));
  }
  HEDDLE_CHECK(!has_tensors, "cache has k_scales or v_scales, but pages by address hold their own");
  const PagedKv pages =
      PagedKv::from_pointers(dtype_of("the cache", c.dtype), ctx.device, c.num_layers, c.layer_idx,
                             c.num_kv_heads, c.page_size, c.head_dim);
  return has_numbers ? pages.with_scales(c.k_scale, c.v_scale) : pages;
}

inline PageTable page_table_of(const heddle_page_table* table) {
  const heddle_page_table& t = required("table", table);
  return {.page_indptr = in("page_indptr", t.page_indptr),
          .pages = in("pages", t.pages),
          .last_page_len = in("last_page_len", t.last_page_len)};
}

}  // namespace heddle::capi
