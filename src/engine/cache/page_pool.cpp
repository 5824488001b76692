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
  if (pool_ == nullptr) return;
  pool_->num_promised_ -= num_reserved_ - std::ssize(ids_);
  pool_->num_listed_ -= num_reserved_;
  for (; !ids_.empty(); ids_.pop_back()) pool_->remove_owner(ids_.back());
}

void ReservedPages::swap(ReservedPages& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(num_reserved_, other.num_reserved_);
  ids_.swap(other.ids_);
}

bool ReservedPages::reserve_to(int64_t count) noexcept {
  const int64_t more = count - num_reserved_;
  if (more <= 0) return true;
  if (more > pool_->num_free() || more > pool_->max_listed_ - pool_->num_listed_) return false;
  pool_->num_promised_ += more;
  pool_->num_listed_ += more;
  num_reserved_ = count;
  return true;
}

void ReservedPages::grow_to(int64_t count) {
  HEDDLE_CHECK(count <= num_reserved_, "the row needs ", count, " KV pages, it was admitted for ",
               num_reserved_);
  while (std::ssize(ids_) < count) {
    --pool_->num_promised_;
    ids_.push_back(pool_->take());
  }
}

void ReservedPages::shrink_to(int64_t count) noexcept {
  for (; std::ssize(ids_) > count; ids_.pop_back()) {
    pool_->remove_owner(ids_.back());
    ++pool_->num_promised_;
  }
}

void ReservedPages::share(PageId page) noexcept {
  --pool_->num_promised_;
  pool_->add_owner(page);
  ids_.push_back(page);
}

void ReservedPages::replace(int64_t i, PageId page) noexcept {
  pool_->add_owner(page);
  pool_->remove_owner(std::exchange(ids_[static_cast<size_t>(i)], page));
}

std::optional<ReservedPages> PagePool::reserve(int64_t num_pages, std::span<const PageId> shared,
                                               int64_t max_pages) {
  const auto num_in_use =
      std::ranges::count_if(shared, [this](PageId page) { return state(page).num_owners > 0; });
  if (num_pages - num_in_use > num_free()) return std::nullopt;
  if (num_pages > max_listed_ - num_listed_) return std::nullopt;
  ReservedPages pages;
  pages.ids_.reserve(static_cast<size_t>(std::max(num_pages, max_pages)));
  make_room();
  pages.pool_ = this;
  pages.num_reserved_ = num_pages;
  num_promised_ += num_pages;
  num_listed_ += num_pages;
  for (const PageId page : shared) pages.share(page);
  return pages;
}

/// So that allocating and freeing allocate no memory of the host, whatever is reserved.
void PagePool::make_room() {
  if (states_.capacity() >= static_cast<size_t>(num_pages_)) return;
  states_.reserve(static_cast<size_t>(num_pages_));
  released_.reserve(static_cast<size_t>(num_pages_));
}

PageId PagePool::take() noexcept {
  PageId page{};
  if (released_.empty() && next_ < num_pages_) {
    page = static_cast<PageId>(next_++);
    states_.emplace_back();
  } else {
    page = take_used();
    if (keeper_ != nullptr) keeper_->before_reuse(page);
  }
  state(page).num_owners = 1;
  ++num_in_use_;
  return page;
}

PageId PagePool::take_used() noexcept {
  if (!released_.empty()) {
    const PageId page = released_.back();
    released_.pop_back();
    return page;
  }
  const PageId page = keeper_->evict();
  state(page).is_kept = false;
  --num_unused_;
  return page;
}

void PagePool::add_owner(PageId page) noexcept {
  if (state(page).num_owners++ > 0) return;
  ++num_in_use_;
  --num_unused_;
  keeper_->remove_unused(page);
}

void PagePool::remove_owner(PageId page) noexcept {
  if (--state(page).num_owners > 0) return;
  --num_in_use_;
  if (state(page).is_kept) {
    ++num_unused_;
    keeper_->add_unused(page);
  } else {
    released_.push_back(page);
  }
}

void PagePool::drop(PageId page) noexcept {
  state(page).is_kept = false;
  if (state(page).num_owners > 0) return;
  --num_unused_;
  released_.push_back(page);
}

}  // namespace heddle
