#include "ops/attention/paged/page_walk.h"

#include <algorithm>

namespace heddle::cpu::attention {

PageWalk::PageWalk(const PagedKv& cache, const PageTable& table)
    : page_indptr_(table.page_indptr),
      pages_(table.pages),
      last_page_len_(table.last_page_len),
      pool_(cache.pool),
      page_size_(cache.page_size) {
  const auto element = static_cast<int64_t>(size_of(cache.dtype));
  page_distance_ = cache.page_stride * element;
  key_offset_ = cache.k_offset * element;
  value_distance_ = (cache.v_offset - cache.k_offset) * element;
  head_distance_ = cache.head_stride * element;
  slot_distance_ = cache.slot_stride * element;
}

int64_t PageWalk::kv_len(int64_t seq) const {
  const int64_t num_pages = page_indptr_[seq + 1] - page_indptr_[seq];
  return num_pages == 0 ? 0 : (num_pages - 1) * page_size_ + last_page_len_[seq];
}

std::byte* PageWalk::page_address(int64_t index) const {
  const int64_t page = pages_[index];
  return pool_ != nullptr ? pool_ + page * page_distance_ : reinterpret_cast<std::byte*>(page);
}

void PageWalk::key_rows(int64_t seq, int64_t kv_head, int64_t first, int64_t count,
                        std::byte** rows) const {
  int64_t page = page_indptr_[seq] + first / page_size_, slot = first % page_size_;
  for (int64_t i = 0; i < count; ++page, slot = 0) {
    std::byte* row =
        page_address(page) + key_offset_ + kv_head * head_distance_ + slot * slot_distance_;
    for (const int64_t end = std::min(count, i + page_size_ - slot); i < end; ++i) {
      rows[i] = row;
      row += slot_distance_;
    }
  }
}

}  // namespace heddle::cpu::attention
