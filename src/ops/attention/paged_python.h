#pragma once

#include "heddle/ops/kv_cache.h"

#include "bindings/call.h"

namespace heddle::python {

/// Views of the arrays of a heddle.PageTable, the argument `table` of a call.
[[nodiscard]] PageTable page_table(Call& call, nb::handle table);

/// The cache that a heddle.PagedKv tells, the argument `cache` of a call: a pool of numbered pages,
/// or pages of their own addresses, which lie on the device of the arrays before. `access` says
/// whether the call writes to the pool.
[[nodiscard]] PagedKv paged_kv(Call& call, nb::handle cache, Access access);

}  // namespace heddle::python
