#include "generate/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

bool is_standard_input(const std::string& path) { return path == "-" || path == "/dev/stdin"; }

}  // namespace

LineReader::LineReader(const std::string& path)
    : name_(is_standard_input(path) ? "standard input" : path) {
  fd_ = is_standard_input(path) ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  HEDDLE_CHECK(fd_ >= 0, name_, ": cannot open: ", std::strerror(errno));
  struct stat status = {};
  const bool is_folder = fstat(fd_, &status) == 0 && S_ISDIR(status.st_mode);
  if (is_folder) close(fd_);
  HEDDLE_CHECK(!is_folder, name_, ": cannot read: it is a folder");
  is_regular_ = S_ISREG(status.st_mode);
  if (is_regular_) start_ = lseek(fd_, 0, SEEK_CUR);
}

LineReader::~LineReader() { close(fd_); }

void LineReader::rewind() {
  const bool moved = lseek(fd_, start_, SEEK_SET) == start_;
  HEDDLE_CHECK(moved, name_, ": cannot read it again: ", std::strerror(errno));
  buffer_.clear();
  begin_ = searched_ = 0;
  at_end_ = skipping_ = false;
  line_number_ = 0;
}

/// Moves the first line of the buffer to `line`; false where there is no whole one yet.
bool LineReader::take_line(std::string& line) {
  size_t end = buffer_.find('\n', searched_);
  if (skipping_) {  // the rest of a line that was cut
    skipping_ = end == std::string::npos;
    begin_ = searched_ = skipping_ ? buffer_.size() : end + 1;
    if (skipping_) return false;
    end = buffer_.find('\n', searched_);
  }
  const bool is_whole = end != std::string::npos;
  if (!is_whole) searched_ = end = buffer_.size();
  const bool is_too_long = end - begin_ > kMaxLineBytes;
  if (!is_whole && !is_too_long && !(at_end_ && end > begin_)) return false;
  line.assign(buffer_, begin_, is_too_long ? kMaxLineBytes + 1 : end - begin_);
  skipping_ = !is_whole && !at_end_;
  begin_ = searched_ = is_whole ? end + 1 : end;
  ++line_number_;
  return true;
}

bool LineReader::is_readable() const {
  pollfd state{fd_, POLLIN, 0};
  return is_regular_ || poll(&state, 1, 0) > 0;
}

void LineReader::fill() {
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  const size_t size = buffer_.size();
  buffer_.resize(size + kReadBytes);
  ssize_t count = 0;
  do {
    count = read(fd_, buffer_.data() + size, kReadBytes);
  } while (count < 0 && errno == EINTR);
  const int error = errno;
  buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  HEDDLE_CHECK(count >= 0, name_, ": read error after line ", line_number_, ": ",
               std::strerror(error));
  at_end_ = count == 0;
}

LineReader::Status LineReader::next(std::string& line) {
  while (true) {
    if (take_line(line)) return Status::kLine;
    if (at_end_) return Status::kEnd;
    if (!is_readable()) return Status::kNotYet;
    fill();
  }
}

}  // namespace heddle::app
