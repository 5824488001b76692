#include "engine/cache/page_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <signal.h>
#include <sys/random.h>
#include <system_error>
#include <utility>

#include "heddle/core/error.h"

namespace heddle {
namespace {

/// For the length of the object, signals are for other threads, and so they are for good for a
/// thread that is started meanwhile. A write past RLIMIT_FSIZE is an error then, where SIGXFSZ
/// would end the process.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() {
    sigset_t past_limit;
    ::sigemptyset(&past_limit);
    ::sigaddset(&past_limit, SIGXFSZ);
    const timespec at_once{};
    while (::sigtimedwait(&past_limit, nullptr, &at_once) > 0) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

PageStore::PageStore(const PageStoreOptions& options, const PageIdentity& identity,
                     OnWarning on_warning)
    : options_(options), on_warning_(std::move(on_warning)) {
  HEDDLE_CHECK(options.page_bytes > 0 && options.page_size > 0, "a page has ", options.page_size,
               " tokens and ", options.page_bytes, " bytes");
  try {
    const BlockedSignals blocked;
    open(identity);
    secret_ = folder_->secret();
    thread_ = std::thread([this] { run(); });
  } catch (const PageFolderFault& fault) {
    on_warning_(fault.what());
  } catch (const std::system_error& e) {
    folder_.reset();
    on_warning_(options.dir + ": cannot start a thread: " + e.what() +
                "; pages are not kept on disk");
  }
  if (!is_open() && ::getrandom(secret_.data(), secret_.size(), 0) < 0) secret_ = {};
}

void PageStore::open(const PageIdentity& identity) {
  PageIdentity all = identity;
  all.add("page_size", options_.page_size);
  all.add("page_bytes", options_.page_bytes);
  const PageFolder::Shape shape{.max_bytes = options_.max_bytes,
                                .page_bytes = options_.page_bytes,
                                .page_size = options_.page_size};
  auto folder = std::make_unique<PageFolder>(options_.dir, all.text(), shape, on_warning_);
  index_.emplace(folder->num_slots(), folder->secret());
  index_->load(folder->read_records(on_warning_));
  record_.resize(record_bytes(static_cast<size_t>(options_.page_size)));
  folder_ = std::move(folder);
}

PageStore::~PageStore() { close(); }

std::optional<PageStore::Found> PageStore::find(const PageContent& content) {
  const Lock lock(mutex_);
  if (!is_open()) return std::nullopt;
  PageIndex::Entry* const entry = index_->find(content);
  if (entry == nullptr || entry->state == PageIndex::State::kLost) return std::nullopt;
  index_->touch(*entry);
  return Found{.id = entry->record.id, .is_readable = entry->state == PageIndex::State::kWritten};
}

bool PageStore::has(StoredPage page) const {
  const Lock lock(mutex_);
  const PageIndex::Entry* const entry = is_open() ? index_->find(page) : nullptr;
  return entry != nullptr && entry->state != PageIndex::State::kLost;
}

std::optional<StoredPage> PageStore::write(const PageContent& content,
                                           std::span<const std::byte> page) {
  HEDDLE_CHECK(page.size() == static_cast<size_t>(options_.page_bytes), "a page has ",
               options_.page_bytes, " bytes, not ", page.size());
  HEDDLE_CHECK(content.tokens.size() == static_cast<size_t>(options_.page_size), "a page has ",
               options_.page_size, " tokens, not ", content.tokens.size());
  Lock lock(mutex_);
  if (!is_open()) return std::nullopt;
  PageIndex::Entry* entry = index_->find(content);
  if (entry != nullptr && entry->state != PageIndex::State::kLost) {
    index_->touch(*entry);
    return entry->record.id;
  }
  try {
    if (!has_buffer() || Clock::now() < write_from_ || !index_->has_parent(content.parent)) {
      ++stats_.num_dropped;
      return std::nullopt;
    }
    if (spare_writes_.empty()) {
      spare_writes_.push_back({{}, std::make_unique_for_overwrite<std::byte[]>(page.size())});
      ++num_buffers_;
    }
    if (entry == nullptr) {
      entry = &index_->add(content);
    } else {
      index_->queue_again(*entry);
    }
  } catch (const std::bad_alloc&) {
    ++stats_.num_dropped;
    return std::nullopt;
  }
  const StoredPage id = entry->record.id;
  const auto write = spare_writes_.begin();
  write->id = id;
  std::memcpy(write->page.get(), page.data(), page.size());
  writes_.splice(writes_.end(), spare_writes_, write);
  arrived_.notify_one();
  return id;
}

bool PageStore::has_room() const {
  const Lock lock(mutex_);
  return has_buffer();
}

bool PageStore::has_buffer() const {
  const int64_t max_buffers = std::max<int64_t>(options_.queue_bytes / options_.page_bytes, 1);
  return !spare_writes_.empty() || num_buffers_ < max_buffers;
}

std::optional<PageRead> PageStore::begin_read(StoredPage page, std::span<std::byte> to) {
  HEDDLE_CHECK(to.size() == static_cast<size_t>(options_.page_bytes), "a page has ",
               options_.page_bytes, " bytes, not ", to.size());
  const Lock lock(mutex_);
  if (!is_open()) return std::nullopt;
  PageIndex::Entry* const entry = index_->find(page);
  if (entry == nullptr || entry->state != PageIndex::State::kWritten) return std::nullopt;
  const auto read = PageRead{next_read_};
  try {
    reads_.push_back({.result = {.read = read, .is_from_disk = true}, .page = page, .to = to});
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  ++next_read_;
  ++num_reads_;
  index_->begin_read(*entry);
  arrived_.notify_one();
  return read;
}

std::optional<FinishedRead> PageStore::poll() {
  deliver_warnings();
  const Lock lock(mutex_);
  if (finished_.empty()) return std::nullopt;
  const FinishedRead result = finished_.front().result;
  finished_.pop_front();
  --num_reads_;
  return result;
}

std::optional<FinishedRead> PageStore::wait() {
  {
    Lock lock(mutex_);
    finished_one_.wait(lock, [this] { return !finished_.empty() || num_reads_ == 0; });
  }
  return poll();
}

void PageStore::clear() noexcept {
  const Lock lock(mutex_);
  if (!is_open()) return;
  spare_writes_.splice(spare_writes_.end(), writes_);
  index_->clear();
  must_empty_files_ = true;
  arrived_.notify_one();
}

void PageStore::close() noexcept {
  if (thread_.joinable()) {
    {
      const Lock lock(mutex_);
      is_closing_ = true;
      close_by_ = Clock::now() + options_.close_within;
      arrived_.notify_one();
    }
    thread_.join();
  }
  if (is_open()) {
    const Lock lock(mutex_);
    finished_.splice(finished_.end(), reads_);
    stats_.num_dropped += static_cast<int64_t>(writes_.size());
    stats_.num_evicted = index_->num_evicted();
    writes_.clear();
    spare_writes_.clear();
    index_.reset();
    folder_.reset();
  }
  deliver_warnings();
}

PageStoreStats PageStore::stats() const {
  const Lock lock(mutex_);
  PageStoreStats stats = stats_;
  if (!is_open()) return stats;
  stats.num_pages = index_->num_written();
  stats.max_pages = index_->num_slots();
  stats.num_queued = num_buffers_ - static_cast<int64_t>(spare_writes_.size());
  stats.num_evicted = index_->num_evicted();
  return stats;
}

void PageStore::deliver_warnings() noexcept {
  std::vector<std::string> warnings;
  {
    const Lock lock(mutex_);
    warnings.swap(warnings_);
  }
  try {
    for (const std::string& warning : warnings) on_warning_(warning);
  } catch (...) {  // a warning that could not be given
  }
}

}  // namespace heddle
