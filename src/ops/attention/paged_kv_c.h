#pragma once

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"

#include "capi/convert.h"

namespace heddle::capi {

/// For an operation that only reads the pages, unless it `writes`.
inline PagedKv paged_kv_of(const ExecContext& ctx, const heddle_paged_kv* cache, bool writes) {
  const heddle_paged_kv& c = required("cache", cache);
  if (c.k != nullptr || c.v != nullptr) {
    const auto pages = writes ? out : in_place;
    const TensorView keys = pages("cache.k", c.k), values = pages("cache.v", c.v);
    return PagedKv::from_pool(keys, values);
  }
  return PagedKv::from_pointers(dtype_of("the cache", c.dtype), ctx.device, c.num_layers,
                                c.layer_idx, c.num_kv_heads, c.page_size, c.head_dim);
}

inline PageTable page_table_of(const heddle_page_table* table) {
  const heddle_page_table& t = required("table", table);
  return {.page_indptr = in("page_indptr", t.page_indptr),
          .pages = in("pages", t.pages),
          .last_page_len = in("last_page_len", t.last_page_len)};
}

}  // namespace heddle::capi
