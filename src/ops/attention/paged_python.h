#pragma once

#include "heddle/ops/kv_cache.h"

#include "bindings/call.h"
#include "bindings/scalars.h"

namespace heddle::python {

/// How the pages lie where the page table holds addresses and there is no pool.
struct PageLayout {
  int num_layers, layer_idx, num_kv_heads, page_size;
  nb::handle cache_dtype;  // None: that of q or k
};

/// The cache of a call: a pool of numbered pages, or None twice and pages of their own addresses, whose heads and dtype
/// default to those of `like` (num_kv_heads 0: its axis 1). `access` says whether the call writes to the pool.
[[nodiscard]] PagedKv paged_kv(Call& call, nb::handle k_pages, nb::handle v_pages, Access access,
                               const PageLayout& layout, const ConstTensorView& like);

[[nodiscard]] PageTable page_table(Call& call, nb::handle page_indptr, nb::handle pages,
                                   nb::handle last_page_len);

}  // namespace heddle::python
