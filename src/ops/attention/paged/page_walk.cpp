#include "ops/attention/paged/page_walk.h"

#include <algorithm>
#include <cstddef>

namespace heddle::cpu::attention {

PageWalk::PageWalk(const PagedKv& cache, const PageTable& table)
    : page_indptr_(table.page_indptr),
      pages_(table.pages),
      last_page_len_(table.last_page_len),
      page_size_(cache.page_size),
      scales_(scales_of(cache)) {
  const auto element = static_cast<int64_t>(size_of(cache.dtype));
  elements_ = {cache.pool,
               cache.page_stride * element,
               cache.k_offset * element,
               (cache.v_offset - cache.k_offset) * element,
               cache.head_stride * element,
               cache.slot_stride * element};
}

PageWalk::Places PageWalk::scales_of(const PagedKv& cache) {
  constexpr auto kFloat = int64_t{sizeof(float)};
  if (!cache.has_token_scales) {  // that of the cache, wherever a token is; it is only read
    auto* k_scale = reinterpret_cast<std::byte*>(const_cast<float*>(&cache.k_scale));
    constexpr auto kValue = static_cast<int64_t>(offsetof(PagedKv, v_scale)) -
                            static_cast<int64_t>(offsetof(PagedKv, k_scale));
    return {k_scale, 0, 0, kValue, 0, 0};
  }
  const int64_t value = (cache.v_scale_offset - cache.k_scale_offset) * kFloat;
  Places places{cache.pool,
                cache.page_stride * int64_t{sizeof(float8_e4m3)},
                cache.k_scale_offset * kFloat,
                value,
                cache.scale_head_stride * kFloat,
                cache.scale_slot_stride * kFloat};
  if (cache.scale_pool == nullptr) return places;
  places.pool = reinterpret_cast<std::byte*>(cache.scale_pool);
  places.page = cache.scale_page_stride * kFloat;
  return places;
}

int64_t PageWalk::kv_len(int64_t seq) const {
  const int64_t num_pages = page_indptr_[seq + 1] - page_indptr_[seq];
  return num_pages == 0 ? 0 : (num_pages - 1) * page_size_ + last_page_len_[seq];
}

template <class Each>
void PageWalk::walk(const Places& of, int64_t seq, int64_t kv_head, int64_t first, int64_t count,
                    const Each& each) const {
  int64_t page = page_indptr_[seq] + first / page_size_, slot = first % page_size_;
  for (int64_t i = 0; i < count; ++page, slot = 0) {
    const int64_t id = pages_[page];
    std::byte* address =
        of.pool != nullptr ? of.pool + id * of.page : reinterpret_cast<std::byte*>(id);
    address += of.key + kv_head * of.head + slot * of.slot;
    for (const int64_t end = std::min(count, i + page_size_ - slot); i < end; ++i) {
      each(i, address);
      address += of.slot;
    }
  }
}

void PageWalk::key_rows(int64_t seq, int64_t kv_head, int64_t first, int64_t count,
                        std::byte** rows) const {
  walk(elements_, seq, kv_head, first, count,
       [&](int64_t i, std::byte* address) { rows[i] = address; });
}

void PageWalk::key_scales(int64_t seq, int64_t kv_head, int64_t first, int64_t count,
                          float** scales) const {
  walk(scales_, seq, kv_head, first, count,
       [&](int64_t i, std::byte* address) { scales[i] = reinterpret_cast<float*>(address); });
}

}  // namespace heddle::cpu::attention
