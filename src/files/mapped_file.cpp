#include "files/mapped_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::files {
namespace {

[[noreturn]] void throw_system_error(const std::string& path, const char* what, int error) {
  throw_error(ErrorCode::kInvalidArgument, path, ": ", what, ": ",
              std::generic_category().message(error));
}

size_t page_size() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // Non-blocking, since opening a pipe for reading waits for a writer otherwise.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw_system_error(path_, "cannot open", errno);
  try {
    struct stat info {};
    if (::fstat(file_, &info) != 0) throw_system_error(path_, "cannot read", errno);
    HEDDLE_CHECK(!S_ISDIR(info.st_mode), path_, ": is a folder, expected a file");
    HEDDLE_CHECK(S_ISREG(info.st_mode), path_, ": is not a regular file");
    HEDDLE_CHECK(info.st_size > 0, path_, ": the file is empty");
    const size_t size = static_cast<size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_, 0);
    if (data == MAP_FAILED) throw_system_error(path_, "cannot map", errno);
    bytes_ = {static_cast<const std::byte*>(data), size};
  } catch (...) {
    close();
    throw;
  }
}

MappedFile::~MappedFile() { close(); }

void MappedFile::close() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (file_ >= 0) ::close(file_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::read(size_t offset, std::span<std::byte> to) const {
  HEDDLE_CHECK(offset <= bytes_.size() && to.size() <= bytes_.size() - offset, path_, ": read of ",
               to.size(), " bytes at ", offset, ", the file has ", bytes_.size());
  while (!to.empty()) {
    const ssize_t count = ::pread(file_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error(path_, "cannot read", errno);
    HEDDLE_CHECK(count > 0, path_, ": the file ends at byte ", offset, ", it had ", bytes_.size());
    offset += static_cast<size_t>(count);
    to = to.subspan(static_cast<size_t>(count));
  }
}

void MappedFile::release(size_t offset, size_t length) const {
  HEDDLE_CHECK(offset <= bytes_.size() && length <= bytes_.size() - offset, path_, ": release of ",
               length, " bytes at ", offset, ", the file has ", bytes_.size());
  const size_t page = page_size(), end = offset + length;
  const size_t first = offset / page * page;
  const size_t last = end == bytes_.size() ? end : end / page * page;
  if (first >= last) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + first, last - first, MADV_DONTNEED);
}

}  // namespace heddle::files
