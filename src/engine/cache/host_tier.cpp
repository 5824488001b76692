#include "engine/cache/host_tier.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace heddle {
namespace {

constexpr int64_t kWrittenAtOnce = int64_t{8} << 20;  // bytes, to disk, between two steps
constexpr std::chrono::seconds kCloseWithin{10};

PageSecret secret_of(const PageStore* below) {
  if (below != nullptr) return below->secret();
  PageSecret secret;
  std::ranges::copy(process_secret(), secret.begin());
  return secret;
}

}  // namespace

HostTier::HostTier(PinnedPages memory, std::unique_ptr<PageCopier> copier, BytesOf bytes_of,
                   std::unique_ptr<PageStore> below, int64_t max_reads)
    : memory_(std::move(memory)),
      copier_(std::move(copier)),
      bytes_of_(std::move(bytes_of)),
      below_(std::move(below)),
      max_reads_(max_reads),
      secret_(secret_of(below_.get())),
      index_(memory_.num_pages(), secret_),
      filled_(static_cast<size_t>(memory_.num_pages())) {}

HostTier::~HostTier() {
  try {
    if (!outgoing_.empty()) copier_->wait(outgoing_.back().copy);
    collect_outgoing();
    const auto close_by = std::chrono::steady_clock::now() + kCloseWithin;
    while (!to_disk_.empty() && std::chrono::steady_clock::now() < close_by) {
      write_below();
      if (!to_disk_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception&) {  // the device has failed: pages less on disk
  }
  copier_ = nullptr;  // no copy uses the memory from here on
}

/// Which page on disk the parent is; nothing where it is not there.
std::optional<StoredPage> HostTier::stored_parent(const PageContent& content) {
  if (content.parent == StoredPage::kRoot) {
    const bool is_allowed = !content.is_salted || below_->takes_salted();
    return is_allowed ? std::optional(StoredPage::kRoot) : std::nullopt;
  }
  const Entry* const parent = index_.find(content.parent);
  if (parent == nullptr || parent->below == StoredPage::kRoot) return std::nullopt;
  return parent->below;
}

std::optional<PageTier::Found> HostTier::find(const PageContent& content) {
  if (has_failed_) return std::nullopt;
  Entry* const entry = index_.find(content);
  const bool is_on_host = entry != nullptr && entry->state != State::kLost;
  if (!is_on_host) return below_ == nullptr ? std::nullopt : find_below(content, entry);
  index_.touch(*entry);
  return Found{.id = entry->record.id, .is_readable = true};
}

/// entry: of the page, where it has one whose bytes are lost.
std::optional<PageTier::Found> HostTier::find_below(const PageContent& content, Entry* entry) {
  const std::optional<StoredPage> parent = stored_parent(content);
  if (!parent || !index_.has_parent(content.parent)) return std::nullopt;
  const std::optional<Found> found =
      below_->find({.parent = *parent, .acts = content.acts, .tokens = content.tokens});
  if (!found || !found->is_readable) return std::nullopt;
  entry = queue(content, entry);
  if (entry == nullptr) return std::nullopt;
  entry->below = found->id;
  found_on_disk_.push_back(entry->record.id);
  return Found{.id = entry->record.id, .is_readable = true};
}

bool HostTier::has(StoredPage page) const {
  const Entry* const entry = index_.find(page);
  return entry != nullptr && entry->state != State::kLost;
}

/// The entry of a page without a slot, which may be one whose bytes are lost; nullptr: no memory.
HostTier::Entry* HostTier::queue(const PageContent& content, Entry* entry) noexcept {
  try {
    found_on_disk_.reserve(found_on_disk_.size() + 1);
    if (entry == nullptr) return &index_.add(content);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  index_.queue_again(*entry);
  return entry;
}

std::optional<StoredPage> HostTier::write(const PageContent& content,
                                          std::span<const std::byte> page) {
  if (has_failed_) return std::nullopt;
  Entry* entry = index_.find(content);
  if (entry != nullptr && entry->state != State::kLost) {
    index_.touch(*entry);
    return entry->record.id;
  }
  if (!index_.has_parent(content.parent)) return std::nullopt;
  entry = queue(content, entry);
  if (entry == nullptr) return std::nullopt;
  const StoredPage id = entry->record.id;
  const std::optional<int64_t> slot = index_.take_slot();
  if (!slot) {
    index_.lose(*entry);
    return std::nullopt;
  }
  index_.set_written(*entry, *slot);
  index_.begin_read(*entry);  // until the copy is done
  copy_out(*slot, page.data(), id, false);
  return has_failed_ ? std::nullopt : std::optional(id);
}

void HostTier::copy_out(int64_t slot, const std::byte* page, StoredPage id, bool after_steps) {
  try {
    outgoing_.push_back({.id = id, .page = page});
    const Copy copy = copier_->copy_out(memory_[slot], page, after_steps);
    outgoing_.back().copy = filled_[static_cast<size_t>(slot)] = copy;
  } catch (const std::exception&) {
    fail();
  }
}

void HostTier::before_reuse(const std::byte* page) noexcept {
  for (Outgoing& each : outgoing_) {
    if (each.page != page) continue;
    each.page = nullptr;
    follows_steps_ = true;  // a copy in to this page, too, waits as the steps do
    try {
      copier_->hold_steps(each.copy);
    } catch (const std::exception&) {
      fail();
    }
  }
}

std::optional<PageRead> HostTier::begin_read(StoredPage page, std::span<std::byte> to) {
  Entry* const entry = has_failed_ ? nullptr : index_.find(page);
  if (entry == nullptr) return std::nullopt;
  const auto number = PageRead{next_read_};
  try {
    incoming_.push_back({.result = {.read = number}, .id = page, .to = to});
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  const bool is_on_host = entry->state == State::kWritten;
  if (is_on_host) {
    copy_in(incoming_.back(), entry->slot);
  } else if (!begin_disk_read(*entry, incoming_.back())) {
    incoming_.pop_back();
    return std::nullopt;
  }
  index_.begin_read(*entry);
  ++next_read_;
  return number;
}

/// Of a page that is on disk and not being read, into a slot that no page has yet.
bool HostTier::begin_disk_read(Entry& entry, Incoming& read) {
  const bool is_on_disk = entry.state == State::kQueued && entry.below != StoredPage::kRoot;
  if (!is_on_disk || entry.num_readers > 0 || num_disk_reads_ == below_->max_reads()) return false;
  const std::optional<int64_t> slot = index_.take_slot();
  if (!slot) return false;
  read.slot = *slot;
  read.result.is_from_disk = true;
  try {
    copier_->wait(filled_[static_cast<size_t>(*slot)]);
    read.from_disk = below_->begin_read(entry.below, memory_[*slot]);
  } catch (const std::exception&) {
    fail();
  }
  if (read.from_disk) {
    ++num_disk_reads_;
  } else {
    index_.give_back(*slot);
  }
  return read.from_disk.has_value();
}

HostTier::Copy HostTier::copy_in(std::byte* to, int64_t slot) {
  const Copy filled = filled_[static_cast<size_t>(slot)];
  return copier_->copy_in(to, memory_[slot], filled, std::exchange(follows_steps_, false));
}

void HostTier::copy_in(Incoming& read, int64_t slot) {
  try {
    read.copy = copy_in(read.to.data(), slot);
  } catch (const std::exception&) {
    read.has_failed = true;
    fail();
  }
}

void HostTier::finish_disk_read(const FinishedRead& finished) {
  const auto place = std::ranges::find_if(incoming_, [&](const Incoming& each) {
    return each.from_disk && *each.from_disk == finished.read;
  });
  Incoming& read = *place;
  read.from_disk.reset();
  --num_disk_reads_;
  Entry* const entry = index_.find(read.id);
  if (entry != nullptr && finished.is_good) {
    index_.set_written(*entry, read.slot);
    copy_in(read, read.slot);
    return;
  }
  read.has_failed = true;
  index_.give_back(read.slot);
  if (entry != nullptr) entry->below = StoredPage::kRoot;
}

/// Reports the first of the reads where it is done.
std::optional<FinishedRead> HostTier::next_finished() {
  if (incoming_.empty() || incoming_.front().from_disk) return std::nullopt;
  Incoming& read = incoming_.front();
  try {
    if (!read.has_failed && !copier_->is_done(read.copy)) return std::nullopt;
  } catch (const std::exception&) {
    read.has_failed = true;
    fail();
  }
  read.result.is_good = !read.has_failed;
  const FinishedRead result = read.result;
  if (Entry* const entry = index_.find(read.id)) {
    index_.end_read(*entry);
    if (entry->state == State::kQueued) index_.lose(*entry);
  }
  incoming_.pop_front();
  return result;
}

/// Before each step, and before its reads are begun.
std::optional<FinishedRead> HostTier::poll() {
  follows_steps_ = true;
  try {
    collect_outgoing();
  } catch (const std::exception&) {
    fail();
  }
  if (below_ != nullptr) {
    while (const std::optional<FinishedRead> finished = below_->poll()) finish_disk_read(*finished);
    forget_unread();
  }
  std::optional<FinishedRead> finished = next_finished();
  if (below_ != nullptr && !finished) write_below();
  return finished;
}

std::optional<FinishedRead> HostTier::wait() {
  while (true) {
    if (const std::optional<FinishedRead> finished = poll()) return finished;
    if (incoming_.empty()) return std::nullopt;
    if (incoming_.front().from_disk) {
      if (const std::optional<FinishedRead> finished = below_->wait()) finish_disk_read(*finished);
      continue;
    }
    try {
      copier_->wait(incoming_.front().copy);
    } catch (const std::exception&) {
      incoming_.front().has_failed = true;
      fail();
    }
  }
}

/// What has arrived on the host may be evicted, and goes to disk.
void HostTier::collect_outgoing() {
  for (; !outgoing_.empty() && copier_->is_done(outgoing_.front().copy); outgoing_.pop_front()) {
    const StoredPage id = outgoing_.front().id;
    Entry* const entry = id == StoredPage::kRoot ? nullptr : index_.find(id);
    if (entry == nullptr) continue;
    index_.end_read(*entry);
    if (below_ == nullptr || entry->below != StoredPage::kRoot) continue;
    if (std::ssize(to_disk_) >= index_.num_slots()) to_disk_.pop_front();  // the disk is too slow
    to_disk_.push_back(id);
  }
}

/// Pages that are only on disk are no entries for longer than they are asked for.
void HostTier::forget_unread() noexcept {
  for (; !found_on_disk_.empty(); found_on_disk_.pop_back()) {
    Entry* const entry = index_.find(found_on_disk_.back());
    if (entry != nullptr && entry->state == State::kQueued && entry->num_readers == 0) {
      index_.lose(*entry);
    }
  }
}

/// The next pages that are to be on disk, some at a time, since each is copied.
void HostTier::write_below() {
  const int64_t most = std::max<int64_t>(kWrittenAtOnce / memory_.page_bytes(), 1);
  for (int64_t i = 0; i < most && !to_disk_.empty(); ++i) {
    Entry* const entry = index_.find(to_disk_.front());
    if (entry != nullptr && entry->state == State::kWritten) {
      if (!below_->has_room()) return;
      const PageContent content{.parent = entry->record.parent,
                                .acts = entry->record.acts,
                                .tokens = entry->record.tokens,
                                .is_salted = entry->is_salted};
      if (const std::optional<StoredPage> parent = stored_parent(content)) {
        const std::optional<StoredPage> stored =
            below_->write({.parent = *parent, .acts = content.acts, .tokens = content.tokens},
                          memory_[entry->slot]);
        entry->below = stored.value_or(StoredPage::kRoot);
      }
    }
    to_disk_.pop_front();
  }
}

void HostTier::clear() noexcept {
  index_.clear();
  to_disk_.clear();
  found_on_disk_.clear();
  if (below_ != nullptr) below_->clear();
}

HostTierStats HostTier::stats() const {
  return {.num_pages = index_.num_written(),
          .num_parked = num_parked_pages_,
          .max_pages = index_.num_slots(),
          .num_evicted = index_.num_evicted()};
}

}  // namespace heddle
