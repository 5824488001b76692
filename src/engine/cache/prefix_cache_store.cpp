// How pages of the prefix cache come to the store and back.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/cache/prefix_cache.h"

namespace heddle {
namespace {

constexpr int64_t kMaxReadPages = 64;  // that are read at once for one sequence

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

/// Claims the pages [place.num_pages, end) of the sequence that the store has.
void PrefixCache::claim_stored(Reading& reading, const PrefixPlace& place, const PrefixKey& key,
                               int64_t end) noexcept {
  int32_t before = place.entry;
  for (int64_t i = place.num_pages; i < end; ++i) {
    const std::optional<StoredPage> parent = stored_parent(before);
    if (!parent) return;
    Wanted next = wanted(before, i, key);
    if (lookup(next) != kNone) return;
    const std::optional<PageTier::Found> found = store_->find(content(next, *parent));
    if (!found || !found->is_readable) return;
    before = insert(next);
    if (before == kNone) return;
    rest(before).stored = found->id;
    reading.entries.push_back(before);
  }
}

/// The pages of the entry and of all before it, and after these as many new ones; nothing where
/// there is no room. What is read continues the former, which are not evicted meanwhile.
std::optional<ReservedPages> PrefixCache::continue_chain(int32_t entry, int64_t num_new) noexcept {
  try {
    std::vector<PageId> chain;
    for (; entry != kNone; entry = at(entry).parent) chain.push_back(at(entry).page);
    std::ranges::reverse(chain);
    const int64_t num_pages = std::ssize(chain) + num_new;
    std::optional<ReservedPages> pages = pool_.reserve(num_pages, chain);
    if (pages) pages->grow_to(num_pages);
    return pages;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

bool PrefixCache::begin_read(const PrefixPlace& place, const PrefixKey& key,
                             int64_t max_pages) noexcept {
  if (store_ == nullptr || !is_valid(place)) return false;
  if (key.salt != Digest{} && !store_->takes_salted()) return false;
  const int64_t num_wanted =
      std::min({max_pages - place.num_pages, kMaxReadPages, pool_.num_free()});
  Reading reading{.first_page = place.num_pages, .age = age_};
  std::list<Reading> one;
  try {
    reading.entries.reserve(static_cast<size_t>(std::max<int64_t>(num_wanted, 0)));
    one.push_back(std::move(reading));
  } catch (const std::bad_alloc&) {
    return false;
  }
  Reading& to = one.front();
  claim_stored(to, place, key, place.num_pages + num_wanted);
  std::optional<ReservedPages> pages = continue_chain(place.entry, std::ssize(to.entries));
  size_t num_begun = 0;
  if (pages) {
    to.pages = std::move(*pages);
    while (num_begun < to.entries.size()) {
      const PageId page = to.page_of(num_begun);
      if (!store_->begin_read(rest(to.entries[num_begun]).stored, bytes_of_(page))) break;
      ++num_begun;
    }
  }
  for (; to.entries.size() > num_begun; to.entries.pop_back()) remove(to.entries.back());
  if (num_begun > 0) readings_.splice(readings_.end(), one);
  return num_begun > 0;
}

/// Reads finish in the order in which they were begun. Of one that fails, the pages after it are no
/// use.
void PrefixCache::finish(const FinishedRead& read) noexcept {
  Reading& reading = readings_.front();
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
  if (reading.num_finished == reading.entries.size()) readings_.pop_front();
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
