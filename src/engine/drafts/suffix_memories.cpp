#include "engine/drafts/suffix_memories.h"

#include <algorithm>
#include <new>

namespace heddle {
namespace {

constexpr size_t kBytesOfKey = 512;  // of the list and the table, about
constexpr int kAgeBits = 32;         // that a memory has for itself

}  // namespace

SuffixMemory* SuffixMemories::find(const SuffixMemoryKey& key) noexcept {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  use(found->second);
  return &found->second->memory;
}

void SuffixMemories::use(Place place) noexcept {
  memories_.splice(memories_.begin(), memories_, place);
}

void SuffixMemories::forget(Place place) noexcept {
  num_bytes_ -= place->num_bytes;
  by_key_.erase(place->key);
  memories_.erase(place);
}

/// The first of the list.
SuffixMemories::Place SuffixMemories::find_or_make(const SuffixMemoryKey& key) {
  if (find(key) != nullptr) return memories_.begin();
  SuffixMemoryOptions each = options_.each;
  each.max_bytes = std::min(each.max_bytes, options_.max_bytes - kBytesOfKey);
  memories_.push_front({key, SuffixMemory(each, ++num_made_ << kAgeBits)});
  try {
    by_key_.emplace(key, memories_.begin());
  } catch (...) {
    memories_.pop_front();
    throw;
  }
  return memories_.begin();
}

void SuffixMemories::add(const SuffixMemoryKey& key, std::span<const int32_t> answer) noexcept {
  if (answer.empty() || options_.max_bytes <= kBytesOfKey) return;
  try {
    const Place place = find_or_make(key);
    try {
      place->memory.add(answer);
    } catch (const std::bad_alloc&) {
      forget(place);
      return;
    }
    num_bytes_ -= place->num_bytes;
    place->num_bytes = kBytesOfKey + place->memory.num_bytes();
    num_bytes_ += place->num_bytes;
  } catch (const std::bad_alloc&) {
    return;  // nothing was known of the key
  }
  while (num_bytes_ > options_.max_bytes) forget(std::prev(memories_.end()));
}

void SuffixMemories::clear() noexcept {
  by_key_.clear();
  memories_.clear();
  num_bytes_ = 0;
}

}  // namespace heddle
