#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct stat;

namespace heddle::files {

/// Which file it is and when it changed last: equal where it was neither written to in between nor
/// replaced. Writes through a mapping are not seen.
struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, written_ns = 0, changed_ns = 0;  // times since 1970
  bool operator==(const FileStamp&) const = default;

  [[nodiscard]] static FileStamp of(const struct stat& info);
};

/// A regular file that is open for reading. It is read by calls and never mapped: of a file that is
/// cut or copied over meanwhile a read fails, where a mapping would end the process.
class OpenFile {
 public:
  /// Error(kInvalidArgument) with the path and the system's reason unless `path` is a readable
  /// regular file that is not empty.
  explicit OpenFile(std::string path);
  /// Takes over an open descriptor; `path` stands for it in errors. An empty file is no error here.
  OpenFile(int descriptor, std::string path);
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes, when it was opened.
  [[nodiscard]] uint64_t size() const { return static_cast<uint64_t>(stamp_.size); }
  /// As it was opened.
  [[nodiscard]] const FileStamp& stamp() const { return stamp_; }

  /// Reads bytes [offset, offset + to.size()) of the size that it was opened with. Error where the
  /// file has become shorter. Any threads may do so at once.
  void read(uint64_t offset, std::span<std::byte> to) const;
  /// All of it; Error where it has more than max_bytes.
  [[nodiscard]] std::string read_text(uint64_t max_bytes) const;

 private:
  void close() noexcept;
  void look();

  std::string path_;
  int file_ = -1;
  FileStamp stamp_;
};

}  // namespace heddle::files
