#include "engine/cache/page_folder.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "heddle/core/error.h"

#include "engine/cache/page_identity.h"

namespace heddle {
namespace {

constexpr char kIndexFile[] = "heddle_kv_index", kNewIndexFile[] = "heddle_kv_index.new";
constexpr char kPagesFile[] = "heddle_kv_pages", kLockFile[] = "heddle_kv_lock";
constexpr mode_t kFolderMode = 0700, kFileMode = 0600, kOthersWrite = 022, kAllModes = 07777;
constexpr size_t kBytesAtOnce = size_t{1} << 20;  // of the index, when it is read

[[noreturn]] void throw_fault(const std::string& path, const char* what, int error) {
  throw PageFolderFault(path + ": " + what + ": " + std::generic_category().message(error) +
                        "; pages are not kept on disk");
}

/// Without the slashes at its end, after which O_NOFOLLOW would follow a link.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

int write_all(int file, int64_t offset, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    offset += count;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return 0;
}

/// Reads as much as there is; `count` are the bytes read.
int read_some(int file, int64_t offset, std::span<std::byte> to, size_t& count) noexcept {
  count = 0;
  while (count < to.size()) {
    const ssize_t more =
        ::pread(file, to.data() + count, to.size() - count, offset + static_cast<int64_t>(count));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return errno;
    if (more == 0) return 0;
    count += static_cast<size_t>(more);
  }
  return 0;
}

int truncate_file(int file, int64_t bytes) noexcept {
  return ::ftruncate(file, bytes) == 0 ? 0 : errno;
}

int64_t size_of_file(int file) noexcept {
  struct stat info {};
  return ::fstat(file, &info) == 0 ? int64_t{info.st_size} : 0;
}

PageSecret random_secret(const std::string& path) {
  PageSecret secret;
  // So few bytes come at once.
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw_fault(path, "cannot draw random bytes", errno);
  }
  return secret;
}

std::string octal(mode_t mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3) text += static_cast<char>('0' + (mode >> shift & 7));
  return text;
}

}  // namespace

OwnedDescriptor::~OwnedDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PageFolder::PageFolder(const std::string& path, std::string identity, const Shape& shape,
                       const OnWarning& on_warning)
    : path_(without_slashes(path)),
      shape_(shape),
      header_{.secret = {}, .identity = std::move(identity)},
      record_bytes_(static_cast<int64_t>(record_bytes(static_cast<size_t>(shape.page_size)))),
      first_record_(static_cast<int64_t>(header_bytes(header_.identity.size()))),
      num_slots_((shape.max_bytes - first_record_) / (record_bytes_ + shape.page_bytes)),
      no_record_(static_cast<size_t>(record_bytes_)) {
  HEDDLE_CHECK(num_slots_ > 0, "kv_disk_memory is ", shape.max_bytes,
               " bytes, less than a page of ", shape.page_size,
               " tokens takes: ", first_record_ + record_bytes_ + shape.page_bytes);
  open_folder();
  lock();
  index_ = open_file(kIndexFile, O_CREAT);
  pages_ = open_file(kPagesFile, O_CREAT);
  if (!read_header_of_index(on_warning)) begin_anew();
  // What a larger kv_disk_memory has left.
  const int64_t most_index = record_offset(num_slots_), most_pages = num_slots_ * shape.page_bytes;
  if (size_of_file(index_.get()) > most_index) truncate_file(index_.get(), most_index);
  if (size_of_file(pages_.get()) > most_pages) truncate_file(pages_.get(), most_pages);
}

void PageFolder::open_folder() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path above = fs::path(path_).parent_path();
  if (!above.empty()) fs::create_directories(above, error);
  if (error) throw_fault(path_, "cannot make the folder", error.value());
  if (::mkdir(path_.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    throw_fault(path_, "cannot make the folder", errno);
  }
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0) {
    HEDDLE_CHECK(!S_ISLNK(info.st_mode), path_,
                 ": is a link; name the folder that it leads to for pages on disk");
    HEDDLE_CHECK(S_ISDIR(info.st_mode), path_, ": is not a folder; pages on disk need one");
  }
  folder_ = OwnedDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // What was opened is what counts, whoever has put another folder there meanwhile.
  if (folder_.get() < 0 || ::fstat(folder_.get(), &info) != 0) {
    throw_fault(path_, "cannot open the folder", errno);
  }
  HEDDLE_CHECK(info.st_uid == ::geteuid(), path_, ": belongs to user ", info.st_uid,
               ", who could change the pages that user ", ::geteuid(),
               " keeps there; name a folder of your own");
  HEDDLE_CHECK((info.st_mode & kOthersWrite) == 0, path_, ": others may write to it (mode ",
               octal(info.st_mode & kAllModes),
               ") and could change the pages that are kept there; chmod 700 it");
}

void PageFolder::lock() {
  lock_ = open_file(kLockFile, O_CREAT);
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) throw_fault(file_path(kLockFile), "cannot lock the folder", errno);
    throw PageFolderFault(path_ +
                          ": another process keeps its pages there; this one keeps none on disk");
  }
}

OwnedDescriptor PageFolder::open_file(const char* name, int flags) const {
  // Non-blocking, since opening a pipe may wait otherwise.
  OwnedDescriptor file(::openat(folder_.get(), name,
                                O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, kFileMode));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
    throw_fault(file_path(name), "cannot open", errno);
  }
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || info.st_nlink != 1) {
    throw PageFolderFault(file_path(name) +
                          ": is not a file of this user's alone; pages are not kept on disk");
  }
  if ((info.st_mode & kAllModes) != kFileMode && ::fchmod(file.get(), kFileMode) != 0) {
    throw_fault(file_path(name), "cannot set its mode", errno);
  }
  return file;
}

bool PageFolder::read_header_of_index(const OnWarning& on_warning) {
  std::vector<std::byte> bytes(header_bytes(PageIdentity::kMaxBytes));
  size_t count = 0;
  if (const int error = read_some(index_.get(), 0, bytes, count); error != 0) {
    throw_fault(file_path(kIndexFile), "cannot read", error);
  }
  if (count == 0) return false;
  std::string fault;
  try {
    IndexHeader header = read_header(std::span(bytes).first(count));
    if (header.identity == header_.identity) {
      header_ = std::move(header);
      return true;
    }
    fault = identity_difference(header.identity, header_.identity);
  } catch (const Error& e) {
    fault = e.what();
  }
  on_warning(file_path(kIndexFile) + ": " + fault + "; it begins anew, without pages");
  return false;
}

void PageFolder::begin_anew() {
  header_.secret = random_secret(path_);
  // Pages first: those of an index that is still there are too short then, and noticed.
  if (const int error = truncate_file(pages_.get(), 0); error != 0) {
    throw_fault(file_path(kPagesFile), "cannot empty", error);
  }
  // Under another name until it is whole, so that a process that ends leaves no half header. What a
  // machine leaves that stops before it is on disk has no good checksum, and begins anew.
  ::unlinkat(folder_.get(), kNewIndexFile, 0);
  OwnedDescriptor index = open_file(kNewIndexFile, O_CREAT | O_EXCL);
  int error = write_all(index.get(), 0, header_of(header_));
  if (error == 0 && ::renameat(folder_.get(), kNewIndexFile, folder_.get(), kIndexFile) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlinkat(folder_.get(), kNewIndexFile, 0);
    throw_fault(file_path(kIndexFile), "cannot write", error);
  }
  index_ = std::move(index);
}

int64_t PageFolder::record_offset(int64_t slot) const {
  return first_record_ + slot * record_bytes_;
}

std::vector<std::pair<int64_t, PageRecord>> PageFolder::read_records(
    const OnWarning& on_warning) const {
  std::vector<std::pair<int64_t, PageRecord>> records;
  const auto record_size = static_cast<size_t>(record_bytes_);
  const size_t records_at_once = std::max(kBytesAtOnce / record_size, size_t{1});
  std::vector<std::byte> bytes(records_at_once * record_size);
  int64_t num_damaged = 0;
  size_t count = bytes.size();
  for (int64_t first = 0; first < num_slots_ && count == bytes.size();
       first += static_cast<int64_t>(records_at_once)) {
    const int error = read_some(index_.get(), record_offset(first), bytes, count);
    if (error != 0) ++num_damaged;  // and `count` are there
    if (count % record_size != 0) ++num_damaged;
    for (size_t i = 0; i < count / record_size; ++i) {
      const int64_t slot = first + static_cast<int64_t>(i);
      PageRecord record;
      record.tokens.resize(static_cast<size_t>(shape_.page_size));
      const auto state = read_record(std::span(bytes).subspan(i * record_size, record_size), slot,
                                     header_.secret, record);
      if (state == RecordState::kDamaged) ++num_damaged;
      if (state == RecordState::kGood && slot < num_slots_) {
        records.emplace_back(slot, std::move(record));
      }
    }
  }
  if (num_damaged > 0) {
    on_warning(file_path(kIndexFile) + ": " + std::to_string(num_damaged) +
               " records are damaged; their pages are left out, and those that follow them");
  }
  return records;
}

bool PageFolder::was_removed() const noexcept {
  for (const int file : {index_.get(), pages_.get()}) {
    struct stat info {};
    if (::fstat(file, &info) == 0 && info.st_nlink == 0) return true;
  }
  return false;
}

int PageFolder::write_page(int64_t slot, std::span<const std::byte> record,
                           std::span<const std::byte> page) noexcept {
  if (was_removed()) return ESTALE;
  // The record of the page that was there goes first, and the new one comes last: a process that
  // ends in between leaves a free slot. Where the machine stops, writes may reach the disk in any
  // order, and checksums find out.
  if (const int error = free_slot(slot); error != 0) return error;
  if (const int error = write_all(pages_.get(), slot * shape_.page_bytes, page); error != 0) {
    return error;
  }
  return write_record(slot, record);
}

int PageFolder::write_record(int64_t slot, std::span<const std::byte> record) noexcept {
  return write_all(index_.get(), record_offset(slot), record);
}

int PageFolder::read_page(int64_t slot, std::span<std::byte> page) noexcept {
  size_t count = 0;
  const int error = read_some(pages_.get(), slot * shape_.page_bytes, page, count);
  return error == 0 && count < page.size() ? ENODATA : error;
}

int PageFolder::free_slot(int64_t slot) noexcept {
  return write_all(index_.get(), record_offset(slot), no_record_);
}

int PageFolder::free_all() noexcept {
  const int index_error = truncate_file(index_.get(), first_record_);
  const int pages_error = truncate_file(pages_.get(), 0);
  return index_error != 0 ? index_error : pages_error;
}

}  // namespace heddle
