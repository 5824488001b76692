#include "files/open_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::files {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;  // the system reads no more than 2 GiB in one call

[[noreturn]] void throw_system_error(const std::string& path, const char* what, int error) {
  throw_error(ErrorCode::kInvalidArgument, path, ": ", what, ": ",
              std::generic_category().message(error));
}

int64_t nanoseconds_of(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp FileStamp::of(const struct stat& info) {
#ifdef __APPLE__
  const timespec &written = info.st_mtimespec, &changed = info.st_ctimespec;
#else
  const timespec &written = info.st_mtim, &changed = info.st_ctim;
#endif
  return {.device = static_cast<uint64_t>(info.st_dev),
          .inode = static_cast<uint64_t>(info.st_ino),
          .size = static_cast<int64_t>(info.st_size),
          .written_ns = nanoseconds_of(written),
          .changed_ns = nanoseconds_of(changed)};
}

OpenFile::OpenFile(std::string path) : path_(std::move(path)) {
  // Non-blocking, since opening a pipe for reading waits for a writer otherwise.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw_system_error(path_, "cannot open", errno);
  try {
    look();
    HEDDLE_CHECK(stamp_.size > 0, path_, ": the file is empty");
  } catch (...) {
    close();
    throw;
  }
}

OpenFile::OpenFile(int descriptor, std::string path) : path_(std::move(path)), file_(descriptor) {
  try {
    look();
  } catch (...) {
    close();
    throw;
  }
}

void OpenFile::look() {
  struct stat info {};
  if (::fstat(file_, &info) != 0) throw_system_error(path_, "cannot read", errno);
  HEDDLE_CHECK(!S_ISDIR(info.st_mode), path_, ": is a folder, expected a file");
  HEDDLE_CHECK(S_ISREG(info.st_mode), path_, ": is not a regular file");
  stamp_ = FileStamp::of(info);
}

OpenFile::~OpenFile() { close(); }

void OpenFile::close() noexcept {
  if (file_ >= 0) ::close(file_);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), stamp_(other.stamp_) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

void OpenFile::read(uint64_t offset, std::span<std::byte> to) const {
  HEDDLE_CHECK(offset <= size() && to.size() <= size() - offset, path_, ": read of ", to.size(),
               " bytes at ", offset, ", the file has ", size());
  while (!to.empty()) {
    const ssize_t count =
        ::pread(file_, to.data(), std::min(to.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error(path_, "cannot read", errno);
    HEDDLE_CHECK(count > 0, path_, ": the file ends at byte ", offset, ", it had ", size(),
                 ": it has changed while it was read; load it again");
    offset += static_cast<uint64_t>(count);
    to = to.subspan(static_cast<size_t>(count));
  }
}

std::string OpenFile::read_text(uint64_t max_bytes) const {
  HEDDLE_CHECK(size() <= max_bytes, path_, ": has ", size(), " bytes, at most ", max_bytes,
               " are read");
  std::string text(size(), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace heddle::files
