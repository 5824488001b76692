#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "core/digest.h"
#include "engine/cache/page_pool.h"
#include "engine/cache/page_tier.h"
#include "engine/cache/prefix_place.h"

namespace heddle {

/// What the keys and values of a sequence's positions depend on.
struct PrefixKey {
  std::span<const int32_t> tokens;
  Digest salt{};      // sequences of other salts have other pages
  Digest adapters{};  // that act on the positions from acts_from on
  int64_t acts_from = 0;
};

/// The pages of a KV cache by what they are keys and values of, so that a sequence finds those of
/// another one that began alike.
///
///   PrefixPlace place = cache.begin();
///   while (page = cache.find(place, key)) ...          share it: the place is one page further
///   cache.claim(place, key);                           it computes the next pages itself
///   page = cache.add(place, key, own_page);            one of them is computed
///
/// An entry is one page, whole but for tails: found by a hash of the entry of the page before it,
/// of the page's tokens, of the salt and of the adapters that act on it, and compared with all of
/// these. Where no adapter acts yet, the page is that of the base model. Of the entries that
/// continue one, that which was found or added last is compared before any hash is computed. A page
/// that no sequence has any more stays until the pool needs it: the least recently used first, and
/// none before those that continue it.
///
/// A tail is an entry of a page that is not whole, with which a sequence has ended: one for each
/// entry that it continues, the last. No sequence shares it: one that begins with some of its
/// tokens, or of those of a whole page, makes a copy.
///
/// A claim is an entry whose page a running sequence is about to compute, or that is being read
/// from the store. Others wait for it in place of computing the same.
class PrefixCache final : private PagePool::Keeper {
 public:
  /// The pool outlives the cache.
  PrefixCache(PagePool& pool, int64_t page_size);
  ~PrefixCache() override;

  /// Where a page lies.
  using BytesOf = std::function<std::span<std::byte>(PageId)>;
  /// Pages also go to a store, which has them when the pool has others in their place. Both outlive
  /// the cache.
  void set_store(PageTier& store, BytesOf bytes_of);

  /// Of a sequence that has no page yet.
  [[nodiscard]] PrefixPlace begin() const { return {.age = age_}; }
  /// Of a sequence that takes no part: it finds nothing, and its pages are no entries.
  [[nodiscard]] static PrefixPlace nowhere() { return {.age = kNoAge}; }
  /// Whether entries of the place are still in the cache: no `clear` has come since.
  [[nodiscard]] bool is_valid(const PrefixPlace& place) const { return place.age == age_; }

  enum class Found : uint8_t { kNothing, kPage, kClaim };
  struct Next {
    Found found = Found::kNothing;
    PageId page{};  // of kPage
  };
  /// The next page of the sequence. With kPage the place goes on to it: the sequence has to share
  /// it before the pool allocates another one.
  Next find(PrefixPlace& place, const PrefixKey& key);
  /// From here on parts of pages are found, of which sequences make copies. False where a copy
  /// cannot be made.
  using CopyPage = std::function<bool(PageId from, PageId to)>;
  void set_copy_page(CopyPage copy) { copy_ = std::move(copy); }
  [[nodiscard]] bool copy_page(PageId from, PageId to) const { return copy_(from, to); }
  /// Some tokens of the next page of a sequence, of which find gave nothing, or none.
  struct Part {
    PageId page{};  // whose first tokens they are
    int64_t num_tokens = 0;
  };
  /// The longest part that is known, of max_tokens at most.
  [[nodiscard]] Part find_part(const PrefixPlace& place, const PrefixKey& key, int64_t max_tokens);
  /// The sequence ends with all tokens of the key computed; the last of its pages, which is not
  /// whole, is the one after its place. Where memory runs out nothing happens.
  void add_tail(const PrefixPlace& place, const PrefixKey& key, PageId page) noexcept;
  /// Begins to read the next pages of a sequence, which has those before them, up to its first
  /// max_pages; they are claims until they are read. False: the store has none of them, or the pool
  /// no room.
  bool begin_read(const PrefixPlace& place, const PrefixKey& key, int64_t max_pages) noexcept;
  /// Where the next page of the sequence is being read: begins to read those after the ones that
  /// are, so that the store always has some to read.
  void read_on(const PrefixPlace& place, const PrefixKey& key, int64_t max_pages) noexcept;
  /// Completes the reads that have finished.
  void poll() noexcept;
  /// Waits for one read and completes it; false: there is none.
  bool wait() noexcept;
  /// The sequence, which has claimed nothing, is going to compute its next pages: as many as the
  /// tokens of the key fill, up to the first that has an entry already. Where memory runs out it
  /// claims fewer.
  void claim(PrefixPlace& place, const PrefixKey& key) noexcept;
  /// It does not, any more.
  void unclaim(PrefixPlace& place) noexcept;
  /// The sequence has computed its next page. The result is the page to go on with: the same one,
  /// or another that has the same keys and values already. Where memory runs out, and where the
  /// place is not valid, the cache has no entry of it.
  PageId add(PrefixPlace& place, const PrefixKey& key, PageId page) noexcept;
  /// Forgets all entries, and the pages of the store. Pages that sequences have stay theirs.
  void clear() noexcept;

  [[nodiscard]] int64_t num_entries() const { return num_entries_; }  // that have pages
  // Pages that came from the store, and those of them that came from disk.
  [[nodiscard]] int64_t num_read() const { return num_read_; }
  [[nodiscard]] int64_t num_read_from_disk() const { return num_read_from_disk_; }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr PageId kNoPage{-1};
  static constexpr uint64_t kNoAge = std::numeric_limits<uint64_t>::max();
  /// What a page depends on besides its tokens and the pages before it.
  struct Acts {
    Digest salt{};      // on the first page: the others continue one of this salt
    Digest adapters{};  // of those that act on it
    int64_t from = 0;   // the first position of the page on which they do
    friend bool operator==(const Acts&, const Acts&) = default;
    /// Up to which position of a page of so many tokens both have the same keys and values, where
    /// the tokens are the same: what acts later than that changes none of them.
    [[nodiscard]] int64_t common_with(const Acts& other, int64_t page_size) const {
      if (*this == other) return page_size;
      const auto of_base = [page_size](const Acts& acts) {
        return acts.adapters == Digest{} ? page_size : acts.from;
      };
      return salt == other.salt ? std::min(of_base(*this), of_base(other)) : 0;
    }
  };
  /// What finding a page reads, besides its tokens: one line of a processor's cache.
  struct alignas(64) Entry {
    uint64_t hash = 0;
    Acts acts{};
    int32_t parent = kNone;  // of the page before; of an entry that is not in use the next such
    int32_t child = kNone;   // of those that continue it one found or inserted last, or none
    int32_t num_children = 0;
    PageId page = kNoPage;  // kNoPage: a claim
  };
  static_assert(sizeof(Entry) == 64);
  /// The rest of an entry.
  struct Rest {
    int32_t older = kNone, newer = kNone;   // in the list of unused pages
    StoredPage stored = StoredPage::kRoot;  // kRoot: it is not in the store
    int32_t tail = kNone;                   // that continues it
    int32_t num_tokens = 0;                 // of a tail; of others 0
  };

  /// Pages of a chain that are being read.
  struct Reading {
    std::vector<int32_t> entries{};
    std::vector<PageRead> reads{};  // [entries.size()]
    ReservedPages pages{};          // of the whole chain, with room for all that it may get
    int64_t first_page = 0;         // of these that is read
    size_t num_finished = 0;
    uint64_t age = 0;
    bool has_failed = false;

    /// The page of the sequence after those that are read.
    [[nodiscard]] int64_t end_page() const { return first_page + std::ssize(entries); }
    [[nodiscard]] PageId page_of(size_t i) const {
      return pages.ids()[static_cast<size_t>(first_page) + i];
    }
  };

  [[nodiscard]] Entry& at(int32_t entry) { return entries_[static_cast<size_t>(entry)]; }
  [[nodiscard]] Rest& rest(int32_t entry) { return rests_[static_cast<size_t>(entry)]; }
  [[nodiscard]] std::span<int32_t> tokens_of(int32_t entry);
  /// An entry that there may be.
  struct Wanted {
    Acts acts;
    int32_t parent;
    std::span<const int32_t> tokens;
    uint64_t hash = 0;  // once `lookup` has not found it
  };
  [[nodiscard]] Acts acts_on(int32_t parent, int64_t page_idx, const PrefixKey& key) const;
  [[nodiscard]] Wanted wanted(int32_t parent, int64_t page_idx, const PrefixKey& key) const;
  [[nodiscard]] bool is_same(int32_t entry, const Wanted& wanted);
  void set_child(int32_t parent, int32_t entry) noexcept;
  [[nodiscard]] int32_t lookup(Wanted& wanted);
  [[nodiscard]] int32_t insert(const Wanted& wanted) noexcept;
  [[nodiscard]] int32_t allocate_entry();
  int32_t take_entry(const Acts& acts, int32_t parent, std::span<const int32_t> tokens) noexcept;
  void remove(int32_t entry) noexcept;
  [[nodiscard]] bool has_tail_of(const Wanted& page);
  void drop_tail(int32_t parent) noexcept;
  void prefetch_after(int32_t entry) const noexcept;
  void set_page(int32_t entry, PageId page) noexcept;
  [[nodiscard]] PageContent content(const Wanted& wanted, StoredPage parent) const;
  [[nodiscard]] std::optional<StoredPage> stored_parent(int32_t entry) const;
  [[nodiscard]] bool is_stored(int32_t entry) const;
  void write(int32_t entry, bool is_salted) noexcept;
  [[nodiscard]] bool write_one(int32_t entry) noexcept;
  void claim_stored(Reading& reading, int32_t before, const PrefixKey& key, int64_t end) noexcept;
  [[nodiscard]] std::optional<ReservedPages> continue_chain(int32_t entry, int64_t num_new,
                                                            int64_t max_pages) noexcept;
  void begin_reads(Reading& reading) noexcept;
  [[nodiscard]] int64_t num_being_read() const;
  [[nodiscard]] Reading* reading_of(const PrefixPlace& place, const PrefixKey& key);
  void finish(const FinishedRead& read) noexcept;

  void add_unused(PageId page) noexcept override;
  void remove_unused(PageId page) noexcept override;
  PageId evict() noexcept override;
  void before_reuse(PageId page) noexcept override;

  PagePool& pool_;
  int64_t page_size_;
  uint64_t age_ = 0;
  std::vector<Entry> entries_;
  std::vector<Rest> rests_;                  // [entries_.size()]
  std::vector<int32_t> tokens_;              // [entries_.size(), page_size]
  std::vector<int32_t> entry_of_page_;       // [pages that were ever kept]
  int32_t free_ = kNone;                     // first of the entries that are not in use
  int32_t oldest_ = kNone, newest_ = kNone;  // unused pages
  int64_t num_entries_ = 0, num_read_ = 0, num_read_from_disk_ = 0;
  boost::unordered_flat_map<uint64_t, int32_t> by_hash_;
  CopyPage copy_;              // empty: parts are not found
  PageTier* store_ = nullptr;  // nullptr: there is none
  BytesOf bytes_of_;
  std::list<Reading> readings_;  // in the order in which they were begun
};

}  // namespace heddle
