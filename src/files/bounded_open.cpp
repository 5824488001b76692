#include "files/bounded_open.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::files {
namespace fs = std::filesystem;
namespace {

constexpr int kMostTries = 10;  // where links change while they are followed

#ifdef O_PATH
constexpr int kFolder = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
#else
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
#endif

/// Opens a path that has no links, part by part; -1 with errno where a part is a link by now.
int open_without_links(const fs::path& real) {
  int folder = ::open("/", kFolder);
  if (folder < 0) return -1;
  auto part = std::next(real.begin());  // after the root
  for (; part != real.end() && std::next(part) != real.end(); ++part) {
    const int next = ::openat(folder, part->c_str(), kFolder);
    const int error = errno;
    ::close(folder);
    errno = error;
    if (next < 0) return -1;
    folder = next;
  }
  const char* const name = part == real.end() ? "." : part->c_str();
  const int file = ::openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const int error = errno;
  ::close(folder);
  errno = error;
  return file;
}

}  // namespace

bool lies_in(const std::string& path, const std::string& folder) {
  const fs::path inner(path), outer(folder);
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

OpenFile open_within(const std::string& path, const FolderBounds& bounds) {
  if (bounds.empty()) return OpenFile(path);
  std::error_code error;
  for (int i = 0; i < kMostTries; ++i) {
    const fs::path real = fs::canonical(path, error);
    HEDDLE_CHECK(!error, path, ": cannot open: ", error.message());
    const bool is_inside = std::ranges::any_of(
        bounds, [&](const std::string& folder) { return lies_in(real.string(), folder); });
    HEDDLE_CHECK(is_inside, path, ": is a link that leads out of ", bounds.front());
    const int file = open_without_links(real);
    if (file >= 0) {
      OpenFile opened(file, path);
      HEDDLE_CHECK(opened.size() > 0, path, ": the file is empty");
      return opened;
    }
    error = std::error_code(errno, std::generic_category());
    const bool has_changed = errno == ELOOP || errno == ENOTDIR || errno == ENOENT;
    if (!has_changed) break;
  }
  throw_error(ErrorCode::kInvalidArgument, path, ": cannot open: ", error.message());
}

}  // namespace heddle::files
