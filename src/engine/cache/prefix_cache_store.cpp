// How pages of the prefix cache come to the store and back.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/cache/prefix_cache.h"

namespace heddle {
namespace {

/// Of a sequence that begins, however many others read.
int64_t min_reads(const PageTier& store) { return std::max<int64_t>(store.max_reads() / 8, 1); }

}  // namespace

void PrefixCache::set_store(PageTier& store, BytesOf bytes_of) {
  store_ = &store;
  bytes_of_ = std::move(bytes_of);
}

PageContent PrefixCache::content(const Wanted& wanted, StoredPage parent) const {
  const auto& [salt, adapters, from] = wanted.acts;
  const bool is_salted = salt != Digest{};
  Hasher acts(store_->secret());
  acts.add(adapters.low).add(adapters.high).add(from);
  if (is_salted) acts.add(salt.low).add(salt.high);
  return {.parent = parent, .acts = acts.digest(), .tokens = wanted.tokens, .is_salted = is_salted};
}

/// What a page in the store has for its parent that comes after the entry; nothing where it cannot
/// be there, since the entry is not.
std::optional<StoredPage> PrefixCache::stored_parent(int32_t entry) const {
  if (entry == kNone) return StoredPage::kRoot;
  const StoredPage stored = rests_[static_cast<size_t>(entry)].stored;
  return stored == StoredPage::kRoot ? std::nullopt : std::optional(stored);
}

bool PrefixCache::is_stored(int32_t entry) const {
  const std::optional<StoredPage> stored = stored_parent(entry);
  return stored == StoredPage::kRoot || (stored && store_->has(*stored));
}

/// Those before it that the store has lost meanwhile come first: it finds a page by its chain.
void PrefixCache::write(int32_t entry, bool is_salted) noexcept {
  if (store_ == nullptr || (is_salted && !store_->takes_salted())) return;
  int64_t num_before = 0;
  for (int32_t i = at(entry).parent; !is_stored(i); i = at(i).parent) ++num_before;
  for (bool any = true; any && num_before >= 0; --num_before) {
    int32_t next = entry;
    for (int64_t i = 0; i < num_before; ++i) next = at(next).parent;
    any = write_one(next);
  }
}

/// Of an entry whose parent is in the store.
bool PrefixCache::write_one(int32_t entry) noexcept {
  const std::optional<StoredPage> parent = stored_parent(at(entry).parent);
  if (!parent) return false;
  const Wanted self{.acts = at(entry).acts, .parent = at(entry).parent, .tokens = tokens_of(entry)};
  const std::optional<StoredPage> stored =
      store_->write(content(self, *parent), bytes_of_(at(entry).page));
  rest(entry).stored = stored.value_or(StoredPage::kRoot);
  return stored.has_value();
}

/// Claims pages that the store has, after the entry `before`, up to page `end` of the sequence.
void PrefixCache::claim_stored(Reading& reading, int32_t before, const PrefixKey& key,
                               int64_t end) noexcept {
  while (reading.end_page() < end) {
    const std::optional<StoredPage> parent = stored_parent(before);
    if (!parent) return;
    Wanted next = wanted(before, reading.end_page(), key);
    if (lookup(next) != kNone) return;
    const std::optional<PageTier::Found> found = store_->find(content(next, *parent));
    if (!found || !found->is_readable) return;
    before = insert(next);
    if (before == kNone) return;
    rest(before).stored = found->id;
    reading.entries.push_back(before);
  }
}

/// The pages of the entry and of all before it, and after these as many new ones, with room for
/// max_pages; nothing where there is no room. What is read continues the former, which are not
/// evicted meanwhile.
std::optional<ReservedPages> PrefixCache::continue_chain(int32_t entry, int64_t num_new,
                                                         int64_t max_pages) noexcept {
  try {
    std::vector<PageId> chain;
    for (; entry != kNone; entry = at(entry).parent) chain.push_back(at(entry).page);
    std::ranges::reverse(chain);
    const int64_t num_pages = std::ssize(chain) + num_new;
    std::optional<ReservedPages> pages = pool_.reserve(num_pages, chain, max_pages);
    if (pages) pages->grow_to(num_pages);
    return pages;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

/// Of the entries that were claimed; those whose reads cannot be begun are no claims any more.
void PrefixCache::begin_reads(Reading& reading) noexcept {
  const bool have_pages = reading.end_page() <= std::ssize(reading.pages.ids());
  while (have_pages && reading.reads.size() < reading.entries.size()) {
    const size_t i = reading.reads.size();
    const std::optional<PageRead> read =
        store_->begin_read(rest(reading.entries[i]).stored, bytes_of_(reading.page_of(i)));
    if (!read) break;
    reading.reads.push_back(*read);
  }
  for (; reading.entries.size() > reading.reads.size(); reading.entries.pop_back()) {
    remove(reading.entries.back());
  }
}

int64_t PrefixCache::num_being_read() const {
  int64_t count = 0;
  for (const Reading& each : readings_) {
    count += std::ssize(each.entries) - static_cast<int64_t>(each.num_finished);
  }
  return count;
}

bool PrefixCache::begin_read(const PrefixPlace& place, const PrefixKey& key,
                             int64_t max_pages) noexcept {
  if (store_ == nullptr || !is_valid(place) || max_pages <= place.num_pages) return false;
  if (key.salt != Digest{} && !store_->takes_salted()) return false;
  const int64_t least = min_reads(*store_), num_free = pool_.num_free();
  const int64_t ahead = std::max(least, store_->max_reads() - num_being_read());
  const int64_t room = std::min(num_free, std::max(least, num_free / 2));
  std::list<Reading> one;
  try {
    Reading& made = one.emplace_back(Reading{.first_page = place.num_pages, .age = age_});
    made.entries.reserve(static_cast<size_t>(max_pages - place.num_pages));
    made.reads.reserve(made.entries.capacity());
  } catch (const std::bad_alloc&) {
    return false;
  }
  Reading& to = one.front();
  claim_stored(to, place.entry, key, std::min(max_pages, place.num_pages + std::min(ahead, room)));
  if (auto pages = continue_chain(place.entry, std::ssize(to.entries), max_pages)) {
    to.pages = std::move(*pages);
  }
  begin_reads(to);
  const bool any = !to.entries.empty();
  if (any) readings_.splice(readings_.end(), one);
  return any;
}

/// Of whose pages the sequence waits for the next one, and needs all others, too; nullptr: none.
PrefixCache::Reading* PrefixCache::reading_of(const PrefixPlace& place, const PrefixKey& key) {
  Wanted next = wanted(place.entry, place.num_pages, key);
  int32_t before = lookup(next);
  const auto reading = std::ranges::find_if(readings_, [&](const Reading& each) {
    return each.age == age_ && !each.has_failed && each.entries[each.num_finished] == before;
  });
  const int64_t num_pages = std::ssize(key.tokens) / page_size_;
  if (reading == readings_.end() || reading->end_page() >= num_pages) return nullptr;
  for (size_t i = reading->num_finished + 1; i < reading->entries.size(); ++i) {
    const int64_t page_idx = reading->first_page + static_cast<int64_t>(i);
    if (!is_same(reading->entries[i], wanted(before, page_idx, key))) return nullptr;
    before = reading->entries[i];
  }
  return &*reading;
}

void PrefixCache::read_on(const PrefixPlace& place, const PrefixKey& key,
                          int64_t max_pages) noexcept {
  if (readings_.empty() || !is_valid(place)) return;
  const int64_t ahead = std::min(store_->max_reads() - num_being_read(), pool_.num_free() / 2);
  Reading* const reading = ahead > 0 ? reading_of(place, key) : nullptr;
  if (reading == nullptr) return;
  // No more than there is room for, so that nothing is allocated.
  const int64_t room = reading->first_page + static_cast<int64_t>(reading->reads.capacity());
  claim_stored(*reading, reading->entries.back(), key,
               std::min({reading->end_page() + ahead, max_pages, room}));
  if (reading->pages.reserve_to(reading->end_page())) {
    reading->pages.grow_to(reading->end_page());
  }
  begin_reads(*reading);
}

/// Of a read that fails, the pages after it are no use.
void PrefixCache::finish(const FinishedRead& read) noexcept {
  const auto place = std::ranges::find_if(
      readings_, [&](const Reading& each) { return each.reads[each.num_finished] == read.read; });
  Reading& reading = *place;
  const size_t i = reading.num_finished++;
  if (reading.age == age_ && !reading.has_failed) {
    reading.has_failed = !read.is_good;
    if (read.is_good) set_page(reading.entries[i], reading.page_of(i));
    num_read_ += read.is_good ? 1 : 0;
    num_read_from_disk_ += read.is_good && read.is_from_disk ? 1 : 0;
    for (size_t k = reading.entries.size(); reading.has_failed && k-- > i;) {
      remove(reading.entries[k]);
    }
  }
  // The pages go to the sequences that have taken them, and to the list of unused ones.
  if (reading.num_finished == reading.entries.size()) readings_.erase(place);
}

void PrefixCache::before_reuse(PageId page) noexcept {
  if (store_ != nullptr) store_->before_reuse(bytes_of_(page).data());
}

void PrefixCache::poll() noexcept {
  if (store_ == nullptr) return;
  while (const std::optional<FinishedRead> read = store_->poll()) finish(*read);
}

bool PrefixCache::wait() noexcept {
  if (readings_.empty()) return false;
  const std::optional<FinishedRead> read = store_->wait();
  if (read) finish(*read);
  return read.has_value();
}

}  // namespace heddle
