#include "engine/cache/page_index.h"

#include <algorithm>
#include <unordered_set>

namespace heddle {
namespace {

PageContent content_of(const PageRecord& record) {
  return {.parent = record.parent, .acts = record.acts, .tokens = record.tokens};
}

bool is_of(const PageRecord& record, const PageContent& content) {
  return record.parent == content.parent && record.acts == content.acts &&
         std::ranges::equal(record.tokens, content.tokens);
}

}  // namespace

PageIndex::PageIndex(int64_t num_slots, const PageSecret& secret)
    : secret_(secret), num_slots_(num_slots) {}

void PageIndex::load(std::vector<std::pair<int64_t, PageRecord>> pages) {
  // By id, so that parents come before their children.
  std::ranges::sort(pages, {}, [](const auto& page) { return page.second.id; });
  entries_.reserve(pages.size());
  by_content_.reserve(pages.size());
  std::unordered_set<int64_t> slots;
  for (size_t i = 0; i < pages.size(); ++i) {
    auto& [slot, record] = pages[i];
    next_id_ = std::max(next_id_, static_cast<uint64_t>(record.id) + 1);
    clock_ = std::max(clock_, record.last_use);
    const StoredPage id = record.id;
    const auto has_same_id = [&](size_t other) { return pages[other].second.id == id; };
    if ((i > 0 && has_same_id(i - 1)) || (i + 1 < pages.size() && has_same_id(i + 1))) continue;
    const PageContent content = content_of(record);
    if (!has_parent(record.parent) || record.chain != chain_of_content(content)) continue;
    if (find(content) != nullptr) continue;
    set_written(insert(std::move(record)), slot);
    slots.insert(slot);
    next_slot_ = std::max(next_slot_, slot + 1);
  }
  reserve_free_slots();
  for (int64_t slot = next_slot_; slot-- > 0;) {
    if (!slots.contains(slot)) free_slots_.push_back(slot);
  }
}

PageIndex::Entry* PageIndex::find(StoredPage id) {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : &entry->second;
}

const PageIndex::Entry* PageIndex::find(StoredPage id) const {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : &entry->second;
}

PageIndex::Entry* PageIndex::find(const PageContent& content) {
  const auto [begin, end] = by_content_.equal_range(hash_of(content));
  for (auto same = begin; same != end; ++same) {
    Entry* const entry = find(same->second);
    if (is_of(entry->record, content)) return entry;
  }
  return nullptr;
}

bool PageIndex::has_parent(StoredPage parent) {
  return parent == StoredPage::kRoot || find(parent) != nullptr;
}

uint64_t PageIndex::hash_of(const PageContent& content) const {
  // With the secret, so that no request can choose tokens that share a bucket.
  return Hasher(secret_)
      .add(content.parent)
      .add(content.acts)
      .add(std::as_bytes(content.tokens))
      .digest()
      .low;
}

Digest PageIndex::chain_of_content(const PageContent& content) {
  const Entry* const parent = find(content.parent);
  return chain_of(parent == nullptr ? Digest{} : parent->record.chain, content.acts, content.tokens,
                  secret_);
}

PageIndex::Entry& PageIndex::insert(PageRecord&& record) {
  const StoredPage id = record.id;
  std::set<LastUse> leaf{{record.last_use, id}};
  const auto place = by_content_.emplace(hash_of(content_of(record)), id);
  try {
    Entry& entry = entries_[id];
    entry.record = std::move(record);
    entry.leaf = leaf.extract(leaf.begin());
    if (Entry* const parent = find(entry.record.parent)) {
      ++parent->num_children;
      update_leaf(*parent);
    }
    return entry;
  } catch (...) {
    by_content_.erase(place);
    throw;
  }
}

PageIndex::Entry& PageIndex::add(const PageContent& content) {
  PageRecord record{.id = StoredPage{next_id_},
                    .parent = content.parent,
                    .last_use = clock_ + 1,
                    .acts = content.acts,
                    .checksum = {},
                    .chain = chain_of_content(content),
                    .tokens = {content.tokens.begin(), content.tokens.end()}};
  Entry& entry = insert(std::move(record));
  entry.is_salted = content.is_salted;
  ++next_id_;
  ++clock_;
  return entry;
}

void PageIndex::remove(Entry& entry) noexcept {
  for (Entry* removed = &entry; removed != nullptr;) {
    leave_slot(*removed);
    Entry* const parent = find(removed->record.parent);
    const auto [begin, end] = by_content_.equal_range(hash_of(content_of(removed->record)));
    by_content_.erase(std::find_if(
        begin, end, [&](const auto& same) { return same.second == removed->record.id; }));
    entries_.erase(removed->record.id);
    removed = nullptr;
    if (parent == nullptr) return;
    --parent->num_children;
    if (parent->state == State::kLost && parent->num_children == 0) removed = parent;
    update_leaf(*parent);
  }
}

void PageIndex::leave_slot(Entry& entry) noexcept {
  if (entry.state != State::kWritten) return;
  entry.state = State::kLost;
  update_leaf(entry);
  --num_written_;
  if (entry.slot >= 0) give_back(entry.slot);
  entry.slot = -1;
}

std::optional<int64_t> PageIndex::take_slot() noexcept {
  if (free_slots_.empty() && next_slot_ < num_slots_) {
    try {
      reserve_free_slots();
      return next_slot_++;
    } catch (const std::bad_alloc&) {
      return std::nullopt;
    }
  }
  if (free_slots_.empty() && !leaves_.empty()) {
    remove(*find(leaves_.begin()->second));
    ++num_evicted_;
  }
  if (free_slots_.empty()) return std::nullopt;
  const int64_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void PageIndex::set_written(Entry& entry, int64_t slot) noexcept {
  entry.state = State::kWritten;
  entry.slot = slot;
  entry.is_dirty = false;
  ++num_written_;
  update_leaf(entry);
}

void PageIndex::lose(Entry& entry) noexcept {
  leave_slot(entry);
  entry.state = State::kLost;
  if (entry.num_children == 0) remove(entry);
}

void PageIndex::touch(Entry& entry) noexcept {
  const bool was_leaf = entry.leaf.empty();
  if (was_leaf) entry.leaf = leaves_.extract({entry.record.last_use, entry.record.id});
  entry.record.last_use = ++clock_;
  entry.is_dirty = true;
  update_leaf(entry);
}

void PageIndex::begin_read(Entry& entry) noexcept {
  ++entry.num_readers;
  update_leaf(entry);
}

void PageIndex::end_read(Entry& entry) noexcept {
  --entry.num_readers;
  update_leaf(entry);
}

void PageIndex::update_leaf(Entry& entry) noexcept {
  const bool is_leaf =
      entry.state == State::kWritten && entry.num_children == 0 && entry.num_readers == 0;
  if (is_leaf == entry.leaf.empty()) return;
  if (is_leaf) {
    entry.leaf.value() = {entry.record.last_use, entry.record.id};
    leaves_.insert(std::move(entry.leaf));
  } else {
    entry.leaf = leaves_.extract({entry.record.last_use, entry.record.id});
  }
}

void PageIndex::reserve_free_slots() {
  const auto needed = static_cast<size_t>(next_slot_) + 1;
  if (free_slots_.capacity() < needed) free_slots_.reserve(2 * needed);
}

void PageIndex::clear() noexcept {
  leaves_.clear();
  by_content_.clear();
  for (const auto& [id, entry] : entries_) {
    if (entry.slot >= 0) give_back(entry.slot);
  }
  entries_.clear();
  num_written_ = 0;
}

}  // namespace heddle
