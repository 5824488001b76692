#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

PagedKvParams::PagedKvParams(const PagedKv& cache, const PageTable& table)
    : pool(cache.pool),
      pool_pages(cache.num_pages),
      page_indptr(table.page_indptr),
      pages(table.pages),
      last_page_len(table.last_page_len),
      page_size(cache.page_size),
      by_page_size(static_cast<uint32_t>(cache.page_size)) {
  const auto element = static_cast<int64_t>(size_of(cache.dtype));
  if (cache.pool != nullptr) page_step = cache.page_stride * element;
  key_offset = cache.k_offset * element;
  value_distance = (cache.v_offset - cache.k_offset) * element;
  head_step = cache.head_stride * element;
  slot_step = cache.slot_stride * element;
  const int64_t steps = (cache.pool != nullptr ? page_step : 0) | key_offset | value_distance |
                        head_step | slot_step | cache.head_dim * element;
  is_aligned = (reinterpret_cast<intptr_t>(cache.pool) | steps) % 16 == 0;
}

}  // namespace heddle::cuda::attention
