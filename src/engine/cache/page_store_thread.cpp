// What the thread of a store does: all reads and writes of its files.
#include <cerrno>
#include <system_error>

#include "engine/cache/page_store.h"

namespace heddle {
namespace {

using State = PageIndex::State;

}  // namespace

void PageStore::run() {
  Lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] {
      return is_closing_ || must_empty_files_ || !reads_.empty() || !writes_.empty();
    });
    const bool has_work = !reads_.empty() || !writes_.empty();
    const bool is_late = is_closing_ && Clock::now() >= close_by_;
    if (must_empty_files_) {
      empty_files(lock);
    } else if (is_late || !has_work) {
      break;
    } else if (!reads_.empty()) {
      read_one(lock);
    } else {
      write_one(lock);
    }
  }
  save_last_uses(lock);
}

void PageStore::read_one(Lock& lock) {
  std::list<Read> read;
  read.splice(read.end(), reads_, reads_.begin());
  const StoredPage id = read.front().page;
  PageIndex::Entry* entry = index_->find(id);
  bool is_good = false;
  if (entry != nullptr && entry->state == State::kWritten) {
    const int64_t slot = entry->slot;
    const Digest checksum = entry->record.checksum;
    const std::span<std::byte> to = read.front().to;
    lock.unlock();
    const int error = folder_->read_page(slot, to);
    is_good = error == 0 && page_checksum(to, secret_) == checksum;
    if (!is_good) folder_->free_slot(slot);
    lock.lock();
    entry = index_->find(id);  // clear() may have removed it
    ++(is_good ? stats_.num_read : stats_.num_damaged);
    if (!is_good) {
      warn(Warning::kDamaged,
           "/heddle_kv_pages: a page is damaged" +
               (error == 0 ? "" : " (" + std::generic_category().message(error) + ")") +
               " and is computed again");
    }
  }
  if (entry != nullptr) {
    index_->end_read(*entry);
    if (!is_good && entry->state == State::kWritten) index_->lose(*entry);
  }
  read.front().result.is_good = is_good;
  finished_.splice(finished_.end(), read);
  finished_one_.notify_one();
}

void PageStore::write_one(Lock& lock) {
  std::list<Write> write;
  write.splice(write.end(), writes_, writes_.begin());
  const StoredPage id = write.front().id;
  const std::span<const std::byte> page(write.front().page.get(),
                                        static_cast<size_t>(options_.page_bytes));
  lock.unlock();
  const Digest checksum = page_checksum(page, secret_);
  lock.lock();
  PageIndex::Entry* entry = index_->find(id);  // null after clear()
  std::optional<int64_t> slot;
  if (entry != nullptr) {
    // A parent stays as long as it has children, so null is the root.
    const PageIndex::Entry* const parent = index_->find(entry->record.parent);
    const bool has_parent = parent == nullptr || parent->state == State::kWritten;
    if (has_parent && Clock::now() >= write_from_) slot = index_->take_slot();
    if (!slot) {
      index_->lose(*entry);
      ++stats_.num_dropped;
    }
  }
  if (slot) {
    entry->record.checksum = checksum;
    write_record(entry->record, *slot, secret_, record_);
    lock.unlock();
    const int error = folder_->write_page(*slot, record_, page);
    lock.lock();
    entry = index_->find(id);
    if (error != 0) has_failed_to_write(error);
    if (entry != nullptr && error == 0) {
      index_->set_written(*entry, *slot);
      ++stats_.num_written;
    } else {
      index_->give_back(*slot);
      if (entry != nullptr) index_->lose(*entry);
      stats_.num_dropped += entry == nullptr ? 0 : 1;
    }
  }
  spare_writes_.splice(spare_writes_.end(), write);
}

void PageStore::empty_files(Lock& lock) {
  must_empty_files_ = false;
  lock.unlock();
  const int error = folder_->free_all();
  lock.lock();
  if (error != 0) has_failed_to_write(error);
}

void PageStore::save_last_uses(Lock& lock) {
  for (auto& [id, entry] : index_->entries()) {
    if (entry.state != State::kWritten || !entry.is_dirty) continue;
    if (Clock::now() >= close_by_) return;
    write_record(entry.record, entry.slot, secret_, record_);
    lock.unlock();  // close() waits, so that the entries stay
    const int error = folder_->write_record(entry.slot, record_);
    lock.lock();
    if (error != 0) return;
  }
}

void PageStore::has_failed_to_write(int error) {
  if (error == ESTALE) {
    write_from_ = Clock::time_point::max();
    warn(Warning::kRemoved, ": the files were removed; no more pages are kept on disk");
    return;
  }
  write_from_ = Clock::now() + options_.write_again_after;
  warn(Warning::kWrite, ": cannot write: " + std::generic_category().message(error) +
                            "; pages are not kept on disk until it can");
}

void PageStore::warn(Warning kind, const std::string& text) noexcept {
  const uint32_t bit = 1u << static_cast<uint32_t>(kind);
  if ((warned_ & bit) != 0) return;
  warned_ |= bit;
  try {
    warnings_.push_back(folder_->path() + text);
  } catch (const std::bad_alloc&) {  // a warning less
  }
}

}  // namespace heddle
