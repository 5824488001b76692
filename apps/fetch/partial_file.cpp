#include "fetch/partial_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "fetch/fetch_error.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kLockLook{50};

[[noreturn]] void fail_of_system(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

PartialFile::PartialFile(std::string path, const RemoteFile& file, const std::stop_token& stop)
    : path_(std::move(path)), file_(file), hasher_(file.hash, file.size) {
  try {
    while (!open()) {
      if (stop.stop_requested()) fail(FetchFault::kUnavailable, path_, ": was stopped");
      std::this_thread::sleep_for(kLockLook);
    }
    read_what_is_there(stop);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

PartialFile::~PartialFile() { ::close(descriptor_); }

/// False: another one has the lock, or has just moved the file to its place.
bool PartialFile::open() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  descriptor_ = ::open(path_.c_str(), kFlags, 0644);
  if (descriptor_ < 0 && errno == ELOOP) fail(FetchFault::kRefused, path_, ": is a link");
  if (descriptor_ < 0) fail_of_system(path_);
  struct stat own {
  }, now{};
  if (::fstat(descriptor_, &own) != 0) fail_of_system(path_);
  if (!S_ISREG(own.st_mode)) fail(FetchFault::kRefused, path_, ": is no file");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail_of_system(path_);
    return false;
  }
  // While it waited, the one before may have moved or removed it.
  if (::fstat(descriptor_, &own) != 0) fail_of_system(path_);
  const bool is_same =
      ::lstat(path_.c_str(), &now) == 0 && now.st_ino == own.st_ino && now.st_dev == own.st_dev;
  if (!is_same) return false;
  if (own.st_nlink != 1) fail(FetchFault::kRefused, path_, ": has another name, too");
  return true;
}

void PartialFile::read_what_is_there(const std::stop_token& stop) {
  std::string bytes(size_t{1} << 20, '\0');
  for (;;) {
    const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_of_system(path_);
    if (count == 0) return;
    if (stop.stop_requested()) fail(FetchFault::kUnavailable, path_, ": was stopped");
    if (size_ + count > file_.size) return restart();
    hasher_.add(std::string_view(bytes).substr(0, static_cast<size_t>(count)));
    size_ += count;
  }
}

void PartialFile::restart() {
  if (::ftruncate(descriptor_, 0) != 0 || ::lseek(descriptor_, 0, SEEK_SET) != 0) {
    fail_of_system(path_);
  }
  hasher_ = ContentHasher(file_.hash, file_.size);
  size_ = 0;
}

void PartialFile::add(int64_t at, std::string_view bytes) {
  if (at == 0 && size_ > 0) restart();
  if (at != size_)
    fail(FetchFault::kWrong, file_.name, ": bytes at ", at, " follow those at ", size_);
  if (std::ssize(bytes) > file_.size - size_) {
    fail(FetchFault::kWrong, file_.name, ": has more than the ", file_.size,
         " bytes that were announced");
  }
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t count = ::write(descriptor_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_of_system(path_);
    rest.remove_prefix(static_cast<size_t>(count));
  }
  hasher_.add(bytes);
  size_ += std::ssize(bytes);
}

void PartialFile::move_to(const std::string& place) {
  if (size_ < file_.size) {
    fail(FetchFault::kUnavailable, file_.name, ": ended after ", size_, " of ", file_.size,
         " bytes");
  }
  const std::string hex = hasher_.hex();
  if (hex != file_.hash.hex) {
    remove();
    fail(FetchFault::kWrong, file_.name, ": its hash is ", hex, ", announced was ", file_.hash.hex);
  }
  if (::fsync(descriptor_) != 0) fail_of_system(path_);
  if (::rename(path_.c_str(), place.c_str()) != 0) fail_of_system(place);
}

void PartialFile::remove() {
  if (::unlink(path_.c_str()) != 0) fail_of_system(path_);
}

void make_folders(const std::string& root, const std::string& below) {
  fs::create_directories(root);
  fs::path whole = root;
  for (const fs::path& part : fs::path(below)) {
    whole /= part;
    std::error_code exists;
    fs::create_directory(whole, exists);
    const fs::file_type type = fs::symlink_status(whole).type();
    if (type == fs::file_type::not_found) throw std::system_error(exists, whole.string());
    if (type != fs::file_type::directory) {
      fail(FetchFault::kRefused, whole.string(), ": is a link or no folder");
    }
  }
}

}  // namespace heddle::fetch
