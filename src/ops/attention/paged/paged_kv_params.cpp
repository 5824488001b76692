#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

PagedKvParams::PagedKvParams(const PagedKv& cache, const PageTable& table, bool is_aligned)
    : pool(cache.pool),
      pool_pages(cache.num_pages),
      page_indptr(table.page_indptr),
      pages(table.pages),
      last_page_len(table.last_page_len),
      page_size(cache.page_size),
      by_page_size(static_cast<uint32_t>(cache.page_size)),
      is_aligned(is_aligned) {
  const auto element = static_cast<int64_t>(size_of(cache.dtype));
  if (cache.pool != nullptr) page_step = cache.page_stride * element;
  key_offset = cache.k_offset * element;
  value_distance = (cache.v_offset - cache.k_offset) * element;
  head_step = cache.head_stride * element;
  slot_step = cache.slot_stride * element;
}

}  // namespace heddle::cuda::attention
