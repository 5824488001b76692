#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/cache/page_folder.h"
#include "engine/cache/page_identity.h"
#include "engine/cache/page_index.h"
#include "engine/cache/page_tier.h"

namespace heddle {

struct PageStoreOptions {
  std::string dir;
  int64_t max_bytes = 0;   // of all files in it
  int64_t page_bytes = 0;  // KvCache::Shape
  int page_size = 0;
  int64_t queue_bytes = int64_t{64} << 20;  // of pages that wait to be written; one at least
  bool takes_salted = false;                // PageTier
  std::chrono::milliseconds close_within{10'000};
  std::chrono::milliseconds write_again_after{60'000};  // a write that failed
};

struct PageStoreStats {
  int64_t num_pages = 0, max_pages = 0;   // on disk
  int64_t num_queued = 0;                 // to be written, or being written
  int64_t num_written = 0, num_read = 0;  // since it was opened
  int64_t num_dropped = 0;                // that were to be written, and were not
  int64_t num_damaged = 0;                // that could not be read, or had other bytes
  int64_t num_evicted = 0;                // that others took the place of
};

/// Pages of a KV cache in a folder, for the processes that follow. A thread of its own reads and
/// writes; reads go first. A page that is read has the bytes that were written for its content, or
/// it is not good: nothing that happens to the files, and no two contents of one digest, changes
/// that.
///
/// Where the folder fails, the store goes on without: nothing is found and nothing is written. Each
/// kind of failure is one warning. One thread calls its functions, and only wait() and close() wait
/// for the disk.
class PageStore final : public PageTier {
 public:
  /// on_warning is called by the constructor, poll(), wait() and close(), with one sentence.
  using OnWarning = std::function<void(const std::string&)>;

  /// Opens the folder and reads what it has of the same identity; pages of any other one are
  /// removed. page_bytes and page_size are added to the identity. Throws Error where the folder or
  /// the bounds are refused (PageFolder).
  PageStore(const PageStoreOptions& options, const PageIdentity& identity, OnWarning on_warning);
  ~PageStore() override;
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  /// Whether pages are kept.
  [[nodiscard]] bool is_open() const { return folder_ != nullptr; }
  /// It does not change while the folder keeps its pages; random where the store is not open.
  [[nodiscard]] const PageSecret& secret() const override { return secret_; }
  [[nodiscard]] bool takes_salted() const override { return options_.takes_salted; }

  [[nodiscard]] std::optional<Found> find(const PageContent& content) override;
  [[nodiscard]] bool has(StoredPage page) const override;
  /// Copies the page [page_bytes] and queues it. Nothing, too, where the queue is full or the last
  /// write failed.
  std::optional<StoredPage> write(const PageContent& content,
                                  std::span<const std::byte> page) override;

  /// Whether the queue has room for a page.
  [[nodiscard]] bool has_room() const;

  static constexpr int64_t kMaxReads = 64;
  [[nodiscard]] int64_t max_reads() const override { return kMaxReads; }
  [[nodiscard]] std::optional<PageRead> begin_read(StoredPage page,
                                                   std::span<std::byte> to) override;
  [[nodiscard]] std::optional<FinishedRead> poll() override;
  [[nodiscard]] std::optional<FinishedRead> wait() override;

  /// Those on disk and those that are queued.
  void clear() noexcept override;
  /// Writes what is queued, for close_within at most, and closes the files; reads that were begun
  /// are still reported. Nothing is found or written afterwards.
  void close() noexcept;

  [[nodiscard]] PageStoreStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  enum class Warning : uint8_t { kDamaged, kWrite, kRemoved };
  struct Write {
    StoredPage id{};
    std::unique_ptr<std::byte[]> page;
  };
  struct Read {
    FinishedRead result;
    StoredPage page{};
    std::span<std::byte> to;
  };

  void open(const PageIdentity& identity);
  void deliver_warnings() noexcept;
  [[nodiscard]] bool has_buffer() const;  // with the lock

  // Of the thread. They are called with the lock and leave it for the disk.
  void run();
  void read_one(Lock& lock);
  void write_one(Lock& lock);
  void empty_files(Lock& lock);
  void save_last_uses(Lock& lock);
  void has_failed_to_write(int error);
  void warn(Warning kind, const std::string& text) noexcept;

  const PageStoreOptions options_;
  const OnWarning on_warning_;
  PageSecret secret_{};

  mutable std::mutex mutex_;
  std::condition_variable arrived_, finished_one_;
  std::unique_ptr<PageFolder> folder_;  // its reads and writes are the thread's
  std::optional<PageIndex> index_;
  std::list<Write> writes_, spare_writes_;  // those that are written keep their memory
  int64_t num_buffers_ = 0;
  std::list<Read> reads_, finished_;
  int64_t num_reads_ = 0;  // begun and not reported
  uint64_t next_read_ = 1;
  bool must_empty_files_ = false, is_closing_ = false;
  Clock::time_point write_from_{}, close_by_{};
  std::vector<std::string> warnings_;
  uint32_t warned_ = 0;  // kinds, as bits
  PageStoreStats stats_;
  std::vector<std::byte> record_;  // of the thread
  std::thread thread_;
};

}  // namespace heddle
