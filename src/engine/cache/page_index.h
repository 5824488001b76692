#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/page_record.h"

namespace heddle {

/// The pages of a store as a tree, and which slots of its memory or files they have. Pages that are
/// used again keep their slots; the page that was used longest ago of those without children loses
/// its slot first. Not for threads.
class PageIndex {
 public:
  /// Queued pages have no slot yet. Lost ones have none any more, and wait for their bytes to be
  /// written again, since they have children.
  enum class State : uint8_t { kQueued, kWritten, kLost };
  using LastUse = std::pair<uint64_t, StoredPage>;

  struct Entry {
    PageRecord record;
    State state = State::kQueued;
    bool is_dirty = false;   // its last use is not on disk
    bool is_salted = false;  // PageContent
    int32_t num_children = 0, num_readers = 0;
    int64_t slot = -1;
    StoredPage below = StoredPage::kRoot;  // which page it is on disk; of the host's memory
    std::set<LastUse>::node_type leaf{};   // empty while it is among the leaves
  };
  using Entries = std::unordered_map<StoredPage, Entry>;

  PageIndex(int64_t num_slots, const PageSecret& secret);

  /// Fills an empty index with records and their slots; ids go on from the largest one. Leaves out
  /// pages whose parents are missing or of another chain, pages of a content that another one has,
  /// and all of an id that two have.
  void load(std::vector<std::pair<int64_t, PageRecord>> pages);

  /// Null where there is none. An entry stays where it is until it is removed.
  [[nodiscard]] Entry* find(StoredPage id);
  [[nodiscard]] const Entry* find(StoredPage id) const;
  [[nodiscard]] Entry* find(const PageContent& content);
  /// Whether a page may have this parent: it is the root, or there.
  [[nodiscard]] bool has_parent(StoredPage parent);

  /// A queued page of new content with a parent that is there. Throws std::bad_alloc, and nothing
  /// has happened then.
  Entry& add(const PageContent& content);
  /// Queues a lost page again.
  void queue_again(Entry& entry) noexcept { entry.state = State::kQueued; }
  /// A slot for a page that is to be written; nothing where all are taken by pages that have
  /// children or are read. The page that had it is removed.
  [[nodiscard]] std::optional<int64_t> take_slot() noexcept;
  /// A queued page has its bytes in a slot.
  void set_written(Entry& entry, int64_t slot) noexcept;
  /// The bytes of a page are not to be had. Its slot is free; without children it is removed.
  void lose(Entry& entry) noexcept;
  void give_back(int64_t slot) noexcept { free_slots_.push_back(slot); }

  void touch(Entry& entry) noexcept;
  /// Between the two the page keeps its slot.
  void begin_read(Entry& entry) noexcept;
  void end_read(Entry& entry) noexcept;

  /// Removes all. Ids are not given again, and slots that were taken and are no page's stay taken.
  void clear() noexcept;

  [[nodiscard]] Entries& entries() { return entries_; }
  [[nodiscard]] int64_t num_slots() const { return num_slots_; }
  [[nodiscard]] int64_t num_written() const { return num_written_; }
  [[nodiscard]] int64_t num_evicted() const { return num_evicted_; }

 private:
  [[nodiscard]] uint64_t hash_of(const PageContent& content) const;
  [[nodiscard]] Digest chain_of_content(const PageContent& content);
  Entry& insert(PageRecord&& record);
  void remove(Entry& entry) noexcept;
  void leave_slot(Entry& entry) noexcept;
  void update_leaf(Entry& entry) noexcept;
  void reserve_free_slots();

  PageSecret secret_;
  int64_t num_slots_;
  int64_t next_slot_ = 0;            // slots from here on were never taken
  std::vector<int64_t> free_slots_;  // with room for all that were taken
  Entries entries_;
  std::unordered_multimap<uint64_t, StoredPage> by_content_;
  std::set<LastUse> leaves_;  // written, without children and readers
  uint64_t next_id_ = 1, clock_ = 0;
  int64_t num_written_ = 0, num_evicted_ = 0;
};

}  // namespace heddle
