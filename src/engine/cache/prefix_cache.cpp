#include "engine/cache/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace heddle {

PrefixCache::PrefixCache(PagePool& pool, int64_t page_size) : pool_(pool), page_size_(page_size) {
  const auto num_pages = static_cast<size_t>(pool.num_pages());
  entries_.reserve(num_pages);
  rests_.reserve(num_pages);
  tokens_.reserve(num_pages * static_cast<size_t>(page_size));
  entry_of_page_.assign(num_pages, kNone);
  pool_.set_keeper(this);
}

PrefixCache::~PrefixCache() {
  while (wait()) {  // which may still write to pages
  }
  store_ = nullptr;  // it keeps what it has
  clear();
  pool_.set_keeper(nullptr);
}

std::span<int32_t> PrefixCache::tokens_of(int32_t entry) {
  return std::span(tokens_).subspan(static_cast<size_t>(entry * page_size_),
                                    static_cast<size_t>(page_size_));
}

PrefixCache::Acts PrefixCache::acts_on(int32_t parent, int64_t page_idx,
                                       const PrefixKey& key) const {
  const int64_t begin = page_idx * page_size_, end = begin + page_size_;
  Acts acts;
  if (parent == kNone) acts.salt = key.salt;
  if (key.acts_from < end) {
    acts.adapters = key.adapters;
    acts.from = std::max<int64_t>(key.acts_from - begin, 0);
  }
  return acts;
}

PrefixCache::Wanted PrefixCache::wanted(int32_t parent, int64_t page_idx,
                                        const PrefixKey& key) const {
  const auto tokens = key.tokens.subspan(static_cast<size_t>(page_idx * page_size_),
                                         static_cast<size_t>(page_size_));
  return {acts_on(parent, page_idx, key), parent, tokens};
}

bool PrefixCache::is_same(int32_t entry, const Wanted& wanted) {
  const Entry& there = at(entry);
  return there.parent == wanted.parent && there.acts == wanted.acts &&
         std::memcmp(tokens_of(entry).data(), wanted.tokens.data(), wanted.tokens.size_bytes()) ==
             0;
}

/// Looks first at what continued the parent last, which needs no hash.
int32_t PrefixCache::lookup(Wanted& wanted) {
  const bool has_parent = wanted.parent != kNone;
  if (has_parent) {
    const int32_t child = at(wanted.parent).child;
    if (child != kNone && is_same(child, wanted)) return child;
  }
  const uint64_t before = has_parent ? at(wanted.parent).hash : 0;
  const uint64_t seed = hash64(std::as_bytes(std::span(&wanted.acts, 1)), before);
  wanted.hash = hash64(std::as_bytes(wanted.tokens), seed);
  const auto place = by_hash_.find(wanted.hash);
  if (place == by_hash_.end() || !is_same(place->second, wanted)) return kNone;
  set_child(wanted.parent, place->second);
  return place->second;
}

/// A claim does not hide a page, of which others may copy a part.
void PrefixCache::set_child(int32_t parent, int32_t entry) noexcept {
  if (parent == kNone) return;
  int32_t& child = at(parent).child;
  const auto has_page = [&](int32_t each) { return each != kNone && at(each).page != kNoPage; };
  if (has_page(entry) || !has_page(child)) child = entry;
}

/// Entries of one sequence mostly lie in a row: they were inserted together, and those that were
/// removed together come back in their order. A wrong guess costs nothing.
void PrefixCache::prefetch_after(int32_t entry) const noexcept {
  constexpr size_t kAhead = 8;  // entries, in the time of which memory answers
  const size_t ahead = static_cast<size_t>(entry) + kAhead;
  if (ahead >= entries_.size()) return;
  __builtin_prefetch(&entries_[ahead]);
  __builtin_prefetch(&tokens_[ahead * static_cast<size_t>(page_size_)]);
}

/// The first of those that are not in use, of which there is one afterwards.
int32_t PrefixCache::allocate_entry() {
  if (free_ != kNone) return free_;
  tokens_.resize((entries_.size() + 1) * static_cast<size_t>(page_size_));
  rests_.resize(entries_.size() + 1);
  entries_.emplace_back();
  free_ = static_cast<int32_t>(entries_.size()) - 1;
  return free_;
}

/// The entry that was allocated is in use from here on.
int32_t PrefixCache::take_entry(const Acts& acts, int32_t parent,
                                std::span<const int32_t> tokens) noexcept {
  const int32_t entry = std::exchange(free_, at(free_).parent);
  at(entry) = {.acts = acts, .parent = parent};
  std::ranges::copy(tokens, tokens_of(entry).begin());
  if (parent != kNone) ++at(parent).num_children;
  return entry;
}

/// kNone: there is no memory for it, or another entry has its hash.
int32_t PrefixCache::insert(const Wanted& wanted) noexcept {
  try {
    if (!by_hash_.try_emplace(wanted.hash, allocate_entry()).second) return kNone;
  } catch (const std::bad_alloc&) {
    return kNone;
  }
  const int32_t entry = take_entry(wanted.acts, wanted.parent, wanted.tokens);
  at(entry).hash = wanted.hash;
  set_child(wanted.parent, entry);
  return entry;
}

/// Of an entry that none continues, and whose page the pool no longer keeps.
void PrefixCache::remove(int32_t entry) noexcept {
  Entry& removed = at(entry);
  assert(removed.num_children == 0);
  const bool is_tail = rest(entry).num_tokens > 0;
  if (is_tail) {
    rest(removed.parent).tail = kNone;
  } else {
    by_hash_.erase(removed.hash);
  }
  if (removed.parent != kNone) {
    Entry& parent = at(removed.parent);
    --parent.num_children;
    if (parent.child == entry) parent.child = kNone;
  }
  if (removed.page != kNoPage) {
    entry_of_page_[static_cast<size_t>(removed.page)] = kNone;
    --num_entries_;
  }
  removed = {.parent = free_};
  rest(entry) = {};
  free_ = entry;
}

void PrefixCache::set_page(int32_t entry, PageId page) noexcept {
  at(entry).page = page;
  entry_of_page_[static_cast<size_t>(page)] = entry;
  ++num_entries_;
  pool_.keep(page);
}

PrefixCache::Next PrefixCache::find(PrefixPlace& place, const PrefixKey& key) {
  if (!is_valid(place)) return {};
  Wanted next = wanted(place.entry, place.num_pages, key);
  const int32_t entry = lookup(next);
  if (entry == kNone) return {};
  prefetch_after(entry);
  const PageId page = at(entry).page;
  if (page == kNoPage) return {.found = Found::kClaim};
  place.entry = entry;
  ++place.num_pages;
  return {.found = Found::kPage, .page = page};
}

void PrefixCache::claim(PrefixPlace& place, const PrefixKey& key) noexcept {
  if (!is_valid(place)) return;
  const int64_t num_pages = std::ssize(key.tokens) / page_size_;
  int32_t parent = place.entry;
  for (int64_t i = place.num_pages; i < num_pages; ++i) {
    Wanted next = wanted(parent, i, key);
    if (lookup(next) != kNone) return;
    parent = insert(next);
    if (parent == kNone) return;
    place.claim = parent;
  }
}

void PrefixCache::unclaim(PrefixPlace& place) noexcept {
  while (is_valid(place) && place.claim != kNone && place.claim != place.entry) {
    const int32_t entry = place.claim;
    place.claim = at(entry).parent;
    remove(entry);
  }
  place.claim = kNone;
}

PageId PrefixCache::add(PrefixPlace& place, const PrefixKey& key, PageId page) noexcept {
  if (!is_valid(place)) return page;
  Wanted next = wanted(place.entry, place.num_pages, key);
  int32_t entry = lookup(next);
  const bool is_claimed = entry != kNone && at(entry).page == kNoPage;
  if (entry == kNone) entry = insert(next);
  // What another sequence has claimed stays its own to add: this one has no entries from here on.
  if (entry == kNone || (is_claimed && place.claim == kNone)) {
    unclaim(place);
    place.age = kNoAge;
    return page;
  }
  if (at(entry).page == kNoPage) {
    if (has_tail_of(next)) drop_tail(next.parent);  // the page has all of it
    set_page(entry, page);
    write(entry, key.salt != Digest{});
  }
  place.entry = entry;
  ++place.num_pages;
  if (place.claim == entry) place.claim = kNone;
  return at(entry).page;
}

PrefixCache::Part PrefixCache::find_part(const PrefixPlace& place, const PrefixKey& key,
                                         int64_t max_tokens) {
  if (!copy_ || !is_valid(place) || place.entry == kNone) return {};
  const Acts acts = acts_on(place.entry, place.num_pages, key);
  const auto tokens = key.tokens.subspan(static_cast<size_t>(place.num_pages * page_size_));
  int32_t whole = kNone;  // the page that the tokens fill
  if (std::ssize(tokens) >= page_size_) {
    Wanted next = wanted(place.entry, place.num_pages, key);
    whole = lookup(next);
  }
  Part longest;
  for (const int32_t entry : {whole, rest(place.entry).tail, at(place.entry).child}) {
    if (entry == kNone || at(entry).page == kNoPage) continue;
    const int64_t known = rest(entry).num_tokens > 0 ? rest(entry).num_tokens : page_size_;
    const auto of_entry = tokens_of(entry).first(static_cast<size_t>(known));
    const int64_t same = std::ranges::mismatch(of_entry, tokens).in1 - of_entry.begin();
    const int64_t common = at(entry).acts.common_with(acts, page_size_);
    const int64_t count = std::min({same, common, max_tokens});
    if (count > longest.num_tokens) longest = {at(entry).page, count};
  }
  return longest;
}

void PrefixCache::add_tail(const PrefixPlace& place, const PrefixKey& key, PageId page) noexcept {
  const auto first = static_cast<size_t>(place.num_pages * page_size_);
  if (!copy_ || !is_valid(place) || place.entry == kNone || key.tokens.size() <= first) return;
  const int32_t parent = place.entry;
  const auto tokens = key.tokens.subspan(first);
  drop_tail(parent);
  try {
    (void)allocate_entry();
  } catch (const std::bad_alloc&) {
    return;
  }
  const int32_t entry = take_entry(acts_on(parent, place.num_pages, key), parent, tokens);
  rest(entry).num_tokens = static_cast<int32_t>(tokens.size());
  rest(parent).tail = entry;
  set_page(entry, page);
}

/// Whether a page would begin with the tail of the entry before it.
bool PrefixCache::has_tail_of(const Wanted& page) {
  if (page.parent == kNone || rest(page.parent).tail == kNone) return false;
  const int32_t tail = rest(page.parent).tail;
  const auto count = static_cast<size_t>(rest(tail).num_tokens);
  return at(tail).acts == page.acts &&
         std::ranges::equal(tokens_of(tail).first(count), page.tokens.first(count));
}

/// Where the entry has one.
void PrefixCache::drop_tail(int32_t parent) noexcept {
  const int32_t entry = rest(parent).tail;
  if (entry == kNone) return;
  const PageId page = at(entry).page;
  remove_unused(page);
  remove(entry);
  pool_.drop(page);
}

void PrefixCache::clear() noexcept {
  for (const Entry& entry : entries_) {
    if (entry.page == kNoPage) continue;
    entry_of_page_[static_cast<size_t>(entry.page)] = kNone;
    pool_.drop(entry.page);
  }
  entries_.clear();
  rests_.clear();
  tokens_.clear();
  by_hash_.clear();
  free_ = oldest_ = newest_ = kNone;
  num_entries_ = 0;
  ++age_;
  if (store_ != nullptr) store_->clear();
}

/// As the newest.
void PrefixCache::add_unused(PageId page) noexcept {
  const int32_t entry = entry_of_page_[static_cast<size_t>(page)];
  rest(entry).older = newest_;
  (newest_ == kNone ? oldest_ : rest(newest_).newer) = entry;
  newest_ = entry;
}

void PrefixCache::remove_unused(PageId page) noexcept {
  const int32_t entry = entry_of_page_[static_cast<size_t>(page)];
  Rest& removed = rest(entry);
  (removed.older == kNone ? oldest_ : rest(removed.older).newer) = removed.newer;
  (removed.newer == kNone ? newest_ : rest(removed.newer).older) = removed.older;
  removed.older = removed.newer = kNone;
}

/// A sequence has all pages of its chain and frees the last one first, so in the list no page comes
/// after one that it continues.
PageId PrefixCache::evict() noexcept {
  const int32_t entry = oldest_;
  const PageId page = at(entry).page;
  remove_unused(page);
  remove(entry);
  return page;
}

}  // namespace heddle
