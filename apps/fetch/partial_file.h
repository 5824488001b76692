#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "fetch/content_hash.h"
#include "fetch/source.h"

namespace heddle::fetch {

/// A file of which a part has come. It is locked, so that one process or thread at a time adds to
/// it, and stays for a later one, which goes on where it ends. Throws FetchError, and
/// std::system_error where the disk is full or may not be written to.
class PartialFile {
 public:
  /// Opens or makes the file and waits for its lock; reads and hashes what it has. A link, and what
  /// is no file of its own, are refused.
  PartialFile(std::string path, const RemoteFile& file, const std::stop_token& stop);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile();

  /// Bytes that it has.
  [[nodiscard]] int64_t size() const { return size_; }
  /// Adds bytes that belong at `at`, which is size(), or 0 to begin anew. Throws FetchError where
  /// they go past the file's size.
  void add(int64_t at, std::string_view bytes);
  /// Checks size and hash, and moves the file to its place. What is shorter stays (kUnavailable),
  /// what is wrong is removed (kWrong).
  void move_to(const std::string& place);
  void remove();

 private:
  bool open();
  void read_what_is_there(const std::stop_token& stop);
  void restart();

  std::string path_;
  const RemoteFile& file_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  ContentHasher hasher_;
};

/// Makes the folder `root` and, one after the other, those of the relative path `below` in it.
/// Throws FetchError where one of the latter is a link or no folder.
void make_folders(const std::string& root, const std::string& below);

}  // namespace heddle::fetch
