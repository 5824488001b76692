#include "ops/attention/paged/paged_kv_params.h"

#include <limits>

#include "heddle/core/check.h"

namespace heddle::cuda::attention {
namespace {

uint32_t pages_below_2_32(const char* of, int64_t num_pages) {
  HEDDLE_CHECK(num_pages <= int64_t{std::numeric_limits<uint32_t>::max()}, of, " has ", num_pages,
               " pages, expected fewer than 2^32");
  return static_cast<uint32_t>(num_pages);
}

}  // namespace

PagedKvParams::PagedKvParams(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                             bool is_aligned)
    : pool(cache.pool),
      page_indptr(table.page_indptr),
      pages(table.pages),
      last_page_len(table.last_page_len),
      faults(ctx.faults),
      table_pages(pages_below_2_32("the page table", table.pages.size(0))),
      pool_pages(pages_below_2_32("the cache", cache.num_pages)),
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

KvScaleParams::KvScaleParams(const PagedKv& cache)
    : k_scale(cache.k_scale), v_scale(cache.v_scale), has_token_scales(cache.has_token_scales) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  if (cache.scale_pool != nullptr) {
    pool = reinterpret_cast<std::byte*>(cache.scale_pool);
    page_step = cache.scale_page_stride * kFloat;
  } else if (cache.pool != nullptr) {
    pool = cache.pool;
    page_step = cache.page_stride * static_cast<int64_t>(size_of(cache.dtype));
  }
  key_offset = cache.k_scale_offset * kFloat;
  value_distance = (cache.v_scale_offset - cache.k_scale_offset) * kFloat;
  head_step = cache.scale_head_stride * kFloat;
  slot_step = cache.scale_slot_stride * kFloat;
}

}  // namespace heddle::cuda::attention
