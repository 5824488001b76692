#include "engine/cache/page_pool.h"

#include <algorithm>
#include <utility>

#include "heddle/core/error.h"

namespace heddle {

ReservedPages& ReservedPages::operator=(ReservedPages&& other) noexcept {
  ReservedPages taken(std::move(other));
  swap(taken);
  return *this;
}

ReservedPages::~ReservedPages() {
  if (pool_ != nullptr) pool_->give_back(ids_, num_reserved_);
}

void ReservedPages::swap(ReservedPages& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(num_reserved_, other.num_reserved_);
  ids_.swap(other.ids_);
}

void ReservedPages::grow_to(int64_t count) {
  HEDDLE_CHECK(count <= num_reserved_, "the row needs ", count, " KV pages, it was admitted for ",
               num_reserved_);
  while (std::ssize(ids_) < count) ids_.push_back(pool_->take());
}

void ReservedPages::shrink_to(int64_t count) noexcept {
  if (count >= num_reserved_) return;
  const size_t num_kept = std::min(ids_.size(), static_cast<size_t>(count));
  pool_->give_back(std::span(ids_).subspan(num_kept), num_reserved_ - count);
  ids_.resize(num_kept);
  num_reserved_ = count;
}

std::optional<ReservedPages> PagePool::reserve(int64_t num_pages) {
  if (num_pages > num_free_) return std::nullopt;
  // No owner has more pages than were ever reserved at once.
  const auto room = static_cast<size_t>(num_pages_ - num_free_ + num_pages);
  if (room > released_.capacity()) released_.reserve(std::max(room, 2 * released_.capacity()));
  ReservedPages pages;
  pages.ids_.reserve(static_cast<size_t>(num_pages));
  pages.pool_ = this;
  pages.num_reserved_ = num_pages;
  num_free_ -= num_pages;
  return pages;
}

std::optional<ReservedPages> PagePool::reserve_shared(const ReservedPages& other,
                                                      int64_t num_shared, int64_t num_pages) {
  HEDDLE_CHECK(num_shared <= std::ssize(other.ids_) && num_shared <= num_pages, "the row shares ",
               num_shared, " KV pages, the other has ", other.ids_.size(), " of ", num_pages);
  if (std::ssize(others_) < next_) others_.resize(static_cast<size_t>(next_));
  std::vector<PageId> ids;
  ids.reserve(static_cast<size_t>(num_pages));
  std::optional<ReservedPages> pages = reserve(num_pages - num_shared);
  if (!pages) return std::nullopt;
  ids.assign(other.ids_.begin(), other.ids_.begin() + num_shared);
  for (const PageId page : ids) ++others_[static_cast<size_t>(page)];
  pages->ids_ = std::move(ids);
  pages->num_reserved_ = num_pages;
  return pages;
}

PageId PagePool::take() noexcept {
  if (released_.empty()) return static_cast<PageId>(next_++);
  const PageId page = released_.back();
  released_.pop_back();
  return page;
}

void PagePool::give_back(std::span<const PageId> ids, int64_t num_reserved) noexcept {
  num_free_ += num_reserved;
  for (const PageId page : ids) {
    const auto i = static_cast<size_t>(page);
    if (i < others_.size() && others_[i] > 0) {
      --others_[i];
      --num_free_;  // another owner has it
    } else {
      released_.push_back(page);
    }
  }
}

}  // namespace heddle
