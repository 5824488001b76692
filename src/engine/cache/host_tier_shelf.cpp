// Pages of parked requests in host memory.
#include <exception>
#include <utility>

#include "engine/cache/host_tier.h"

namespace heddle {

/// Cached pages make room for them.
PageShelf::Saved HostTier::save(std::span<const PageId> pages) noexcept {
  const bool may_fit = std::ssize(pages) <= index_.num_slots() - num_parked_pages_;
  if (has_failed_ || !may_fit) return Saved::kNone;
  Parked parked;
  const auto saved = Saved{next_saved_};
  try {
    parked.slots.reserve(pages.size());
    while (parked.slots.size() < pages.size()) {
      const std::optional<int64_t> slot = index_.take_slot();
      if (!slot) break;
      parked.slots.push_back(*slot);
    }
    if (parked.slots.size() == pages.size()) parked_.emplace(saved, parked);
  } catch (const std::exception&) {
  }
  if (!parked_.contains(saved)) {
    for (const int64_t slot : parked.slots) index_.give_back(slot);
    return Saved::kNone;
  }
  ++next_saved_;
  num_parked_pages_ += std::ssize(pages);
  for (size_t i = 0; i < pages.size(); ++i) {
    copy_out(parked.slots[i], bytes_of_(pages[i]).data(), StoredPage::kRoot, i == 0);
  }
  if (!has_failed_) return saved;
  drop(saved);
  return Saved::kNone;
}

bool HostTier::begin_restore(Saved saved, std::span<const PageId> pages) noexcept {
  if (has_failed_) return false;
  Parked& parked = parked_.at(saved);
  follows_steps_ = true;
  try {
    for (size_t i = 0; i < pages.size(); ++i) {
      parked.last = copy_in(bytes_of_(pages[i]).data(), parked.slots[i]);
    }
    return true;
  } catch (const std::exception&) {
    fail();
    return false;
  }
}

bool HostTier::is_restored(Saved saved) noexcept {
  try {
    return copier_->is_done(parked_.at(saved).last);
  } catch (const std::exception&) {
    fail();
    return true;
  }
}

void HostTier::wait_until_restored(Saved saved) noexcept {
  try {
    copier_->wait(parked_.at(saved).last);
  } catch (const std::exception&) {
    fail();
  }
}

void HostTier::break_off(Saved saved) noexcept {
  try {
    copier_->hold_steps(parked_.at(saved).last);
  } catch (const std::exception&) {
    fail();
  }
}

void HostTier::drop(Saved saved) noexcept {
  break_off(saved);
  const auto parked = parked_.find(saved);
  num_parked_pages_ -= std::ssize(parked->second.slots);
  for (const int64_t slot : parked->second.slots) index_.give_back(slot);
  parked_.erase(parked);
}

}  // namespace heddle
