#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cache/page_copier.h"
#include "engine/cache/page_index.h"
#include "engine/cache/page_shelf.h"
#include "engine/cache/page_store.h"
#include "engine/cache/page_tier.h"
#include "engine/cache/pinned_pages.h"

namespace heddle {

struct HostTierStats {
  int64_t num_pages = 0;   // of the prefix cache
  int64_t num_parked = 0;  // of requests that were parked
  int64_t max_pages = 0;   // of both
  int64_t num_evicted = 0;
};

/// Pages of a GPU's KV cache in host memory. A page is copied out when it is written, so that it
/// can be evicted from the device at any time, and copied in when it is read, both while steps run
/// and without waiting. Of the pages of the prefix cache those that were used longest ago make room
/// for others, leaves before their parents; pages of parked requests stay until they are dropped.
///
/// With a store below, pages that have arrived are written to it, too, and pages that it has are
/// read through host memory.
class HostTier final : public PageTier, public PageShelf {
 public:
  using BytesOf = std::function<std::span<std::byte>(PageId)>;
  /// What is copied in during some steps, so that the copies do not end before others are begun.
  static constexpr int64_t kMaxReads = 512;
  /// below: nullptr where there is none. bytes_of: where a page of the pool lies on the device.
  HostTier(PinnedPages memory, std::unique_ptr<PageCopier> copier, BytesOf bytes_of,
           std::unique_ptr<PageStore> below = nullptr, int64_t max_reads = kMaxReads);
  /// Waits for the copies; pages that are not in the store are written to it, for a while.
  ~HostTier() override;
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // PageTier
  [[nodiscard]] const PageSecret& secret() const override { return secret_; }
  [[nodiscard]] bool takes_salted() const override { return true; }
  [[nodiscard]] std::optional<Found> find(const PageContent& content) override;
  [[nodiscard]] bool has(StoredPage page) const override;
  std::optional<StoredPage> write(const PageContent& content,
                                  std::span<const std::byte> page) override;
  void before_reuse(const std::byte* page) noexcept override;
  [[nodiscard]] int64_t max_reads() const override { return max_reads_; }
  [[nodiscard]] std::optional<PageRead> begin_read(StoredPage page,
                                                   std::span<std::byte> to) override;
  [[nodiscard]] std::optional<FinishedRead> poll() override;
  [[nodiscard]] std::optional<FinishedRead> wait() override;
  void clear() noexcept override;

  // PageShelf
  [[nodiscard]] Saved save(std::span<const PageId> pages) noexcept override;
  [[nodiscard]] bool begin_restore(Saved saved, std::span<const PageId> pages) noexcept override;
  [[nodiscard]] bool is_restored(Saved saved) noexcept override;
  void wait_until_restored(Saved saved) noexcept override;
  void break_off(Saved saved) noexcept override;
  void drop(Saved saved) noexcept override;

  [[nodiscard]] HostTierStats stats() const;
  /// The store below; nullptr: there is none.
  [[nodiscard]] const PageStore* below() const { return below_.get(); }

 private:
  using Entry = PageIndex::Entry;
  using State = PageIndex::State;
  using Copy = PageCopier::Copy;
  /// A page on its way to the host.
  struct Outgoing {
    StoredPage id = StoredPage::kRoot;  // kRoot: of a parked request
    const std::byte* page = nullptr;    // nullptr: steps wait for it already
    Copy copy{};
  };
  /// A page on its way to the device.
  struct Incoming {
    FinishedRead result{};
    StoredPage id{};
    std::span<std::byte> to{};
    std::optional<PageRead> from_disk{};  // while it is read into the slot
    int64_t slot = -1;
    Copy copy{};
    bool has_failed = false;
  };
  struct Parked {
    std::vector<int64_t> slots{};
    Copy last{};  // of those that bring them back
  };

  [[nodiscard]] std::optional<Found> find_below(const PageContent& content, Entry* entry);
  [[nodiscard]] Entry* queue(const PageContent& content, Entry* entry) noexcept;
  [[nodiscard]] std::optional<StoredPage> stored_parent(const PageContent& content);
  void copy_out(int64_t slot, const std::byte* page, StoredPage id, bool after_steps);
  [[nodiscard]] Copy copy_in(std::byte* to, int64_t slot);
  void copy_in(Incoming& read, int64_t slot);
  [[nodiscard]] bool begin_disk_read(Entry& entry, Incoming& read);
  void finish_disk_read(const FinishedRead& finished);
  void collect_outgoing();
  void forget_unread() noexcept;
  void write_below();
  [[nodiscard]] std::optional<FinishedRead> next_finished();
  void fail() noexcept { has_failed_ = true; }

  PinnedPages memory_;
  std::unique_ptr<PageCopier> copier_;
  BytesOf bytes_of_;
  std::unique_ptr<PageStore> below_;
  int64_t max_reads_;
  PageSecret secret_{};
  PageIndex index_;
  std::vector<Copy> filled_;       // [slots]: the last copy to each
  std::deque<Outgoing> outgoing_;  // in their order
  std::deque<Incoming> incoming_;  // in the order in which they were begun
  std::deque<StoredPage> to_disk_;
  std::vector<StoredPage> found_on_disk_;  // and not read yet
  std::unordered_map<Saved, Parked> parked_;
  uint64_t next_read_ = 1, next_saved_ = 1;
  int64_t num_parked_pages_ = 0, num_disk_reads_ = 0;
  bool follows_steps_ = true;  // the next copy in: steps may have been launched since the last one
  bool has_failed_ = false;    // a copy: nothing more is kept or found
};

}  // namespace heddle
