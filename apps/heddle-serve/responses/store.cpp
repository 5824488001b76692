#include "responses/store.h"

#include <utility>

namespace heddle::serve {
namespace {

constexpr size_t kEntryBytes = 512;  // of an entry besides its texts, about

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse stored) {
  const auto num_bytes =
      static_cast<int64_t>(kEntryBytes + stored.response.size() + stored.messages.size());
  if (!is_on() || num_bytes > max_bytes_) return;
  auto shared = std::make_shared<const StoredResponse>(std::move(stored));
  const std::lock_guard lock(mutex_);
  if (const auto old = places_.find(id); old != places_.end()) drop(old->second);
  while (!entries_.empty() && (static_cast<int64_t>(entries_.size()) >= max_entries_ ||
                               num_bytes_ + num_bytes > max_bytes_)) {
    drop(std::prev(entries_.end()));
  }
  entries_.push_front({.id = id, .stored = std::move(shared), .num_bytes = num_bytes});
  num_bytes_ += num_bytes;
  try {
    places_.emplace(id, entries_.begin());
  } catch (...) {
    num_bytes_ -= num_bytes;
    entries_.pop_front();
    throw;
  }
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id,
                                                          const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(id);
  if (place == places_.end() || place->second->stored->owner != owner) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->stored;
}

bool ResponseStore::erase(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(id);
  if (place == places_.end() || place->second->stored->owner != owner) return false;
  drop(place->second);
  return true;
}

void ResponseStore::drop(Place place) {
  num_bytes_ -= place->num_bytes;
  places_.erase(place->id);
  entries_.erase(place);
}

}  // namespace heddle::serve
