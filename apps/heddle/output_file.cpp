#include "output_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "heddle/core/error.h"

#include "request_json/shown.h"

namespace heddle::app {
namespace fs = std::filesystem;
namespace {

constexpr int kMostLinks = 40;  // as the system has it

/// What the path leads to where its last part is a link, perhaps to a file that is not there yet.
std::string without_links(std::string path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path next = fs::read_symlink(path, error);
    if (error) break;
    path = (fs::path(path).parent_path() / next).string();
  }
  return path;
}

/// Makes a new file in the folder of `path`; its name comes to `partial`.
int make_partial(const std::string& path, std::string& partial) {
  for (int i = 0;; ++i) {
    partial =
        path + ".partial" + std::to_string(::getpid()) + (i > 0 ? "-" + std::to_string(i) : "");
    const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

/// Writes all of the text; 0 or the system's error.
int write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    done += static_cast<size_t>(count);
  }
  return 0;
}

/// Whether it is /dev/stdout, /dev/fd/N or the like: a file that is open already, whose
/// readers would not see one that is put in its place.
bool is_open_already(const std::string& path) {
  return path.starts_with("/dev/") || path.starts_with("/proc/");
}

}  // namespace

OutputFile::OutputFile(std::string option, std::string path)
    : option_(std::move(option)), path_(std::move(path)), target_(without_links(path_)) {
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0) {
    HEDDLE_CHECK(!S_ISDIR(info.st_mode), option_, ' ', shown(path_), ": is a folder");
    HEDDLE_CHECK(!S_ISBLK(info.st_mode) && !S_ISSOCK(info.st_mode), option_, ' ', shown(path_),
                 ": is a disk or a socket, expected a file, a pipe or a terminal");
    is_regular_ = S_ISREG(info.st_mode) && !is_open_already(path_);
    HEDDLE_CHECK(::access(path_.c_str(), W_OK) == 0, option_, ' ', shown(path_),
                 ": cannot be written: ", text_of(errno));
  }
  if (!is_regular_) return;
  fs::path folder = fs::path(target_).parent_path();
  if (folder.empty()) folder = ".";
  HEDDLE_CHECK(::access(folder.c_str(), W_OK | X_OK) == 0, option_, ' ', shown(path_),
               ": cannot be written: ", shown(folder.string()), ": ", text_of(errno));
}

std::string OutputFile::text_of(int error) const { return std::generic_category().message(error); }

void OutputFile::write(const std::string& text) const {
  is_regular_ ? replace(text) : write_through(text);
}

/// By a new file, which gets the rights of the one that it replaces.
void OutputFile::replace(const std::string& text) const {
  std::string partial;
  int error = 0;
  const int file = make_partial(target_, partial);
  if (file < 0) throw std::system_error(errno, std::generic_category(), option_ + " " + path_);
  struct stat before {};
  const bool is_there = ::lstat(target_.c_str(), &before) == 0;
  if (is_there && !S_ISREG(before.st_mode)) {
    error = EEXIST;  // another program has put something else there
  } else if (is_there && ::fchmod(file, before.st_mode & 0777) != 0) {
    error = errno;
  } else {
    error = write_all(file, text);
  }
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(partial.c_str(), target_.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(partial.c_str());
  throw std::system_error(error, std::generic_category(), option_ + " " + path_);
}

void OutputFile::write_through(const std::string& text) const {
  // Non-blocking, since opening a pipe without a reader waits for a reader otherwise.
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  int error = file < 0 ? errno : 0;
  if (file >= 0) {
    const int flags = ::fcntl(file, F_GETFL);
    if (flags >= 0) ::fcntl(file, F_SETFL, flags & ~O_NONBLOCK);
    error = write_all(file, text);
    if (::close(file) != 0 && error == 0) error = errno;
  }
  if (error == ENXIO) {
    throw std::system_error(error, std::generic_category(),
                            option_ + " " + path_ + ": no program reads this pipe");
  }
  if (error != 0) throw std::system_error(error, std::generic_category(), option_ + " " + path_);
}

}  // namespace heddle::app
