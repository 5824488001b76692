#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace heddle::files {

/// A file mapped for reading. Pages are read as they are touched and count as memory of this
/// process until released. The file must not shrink while it is mapped: the system then ends a
/// process that touches what is gone.
class MappedFile {
 public:
  /// Error(kInvalidArgument) with the path and the system's reason unless `path` is a readable
  /// regular file that is not empty.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Stays where it is when the object is moved.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Gives back the memory of [offset, offset + length), which is read from the file again when
  /// touched. Works on whole pages: the one in which the range begins goes too, the one in which it
  /// ends stays unless the file ends there, so that releasing a file piece by piece in ascending
  /// order leaves nothing behind.
  void release(size_t offset, size_t length) const;
  /// Reads bytes [offset, offset + to.size()) into memory of the caller's, by the system's call and
  /// not through the mapping: no page of it is touched. Any threads may do so at once.
  void read(size_t offset, std::span<std::byte> to) const;

 private:
  void close() noexcept;

  std::string path_;
  int file_ = -1;  // for `read`
  std::span<const std::byte> bytes_;
};

}  // namespace heddle::files
