#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::app {

/// A file or a pipe, read line by line without ever waiting for a line that is not there yet.
class LineReader {
 public:
  /// `path` "-" is standard input. Throws Error when it cannot be opened.
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  enum class Status : uint8_t {
    kLine,
    kNotYet,  // a pipe holds no whole line now: wait until fd() is readable
    kEnd,
  };
  /// The next line without its end. The last one may lack a newline. Of a line above kMaxLineBytes
  /// only the first kMaxLineBytes + 1 are given. Throws Error when reading fails.
  Status next(std::string& line);
  /// Starts again with the first line; for regular files.
  void rewind();

  [[nodiscard]] const std::string& name() const { return name_; }  // for messages
  [[nodiscard]] bool is_regular() const { return is_regular_; }
  [[nodiscard]] int64_t line_number() const { return line_number_; }  // of the last line, from 1
  [[nodiscard]] int fd() const { return fd_; }

  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

 private:
  bool take_line(std::string& line);
  bool is_readable() const;
  void fill();

  std::string name_;
  int fd_;
  bool is_regular_ = false;
  int64_t start_ = 0;  // where the first line begins; standard input may have been read before
  std::string buffer_;
  size_t begin_ = 0;     // of the next line in the buffer
  size_t searched_ = 0;  // no newline before it
  bool at_end_ = false, skipping_ = false;
  int64_t line_number_ = 0;
};

}  // namespace heddle::app
