#include "engine/page_pool.h"

namespace heddle {

std::optional<PageId> PagePool::acquire() {
  if (!released_.empty()) {
    const PageId page = released_.back();
    released_.pop_back();
    return page;
  }
  if (next_ == num_pages_) return std::nullopt;
  return static_cast<PageId>(next_++);
}

void PagePool::release(PageId page) { released_.push_back(page); }

}  // namespace heddle
