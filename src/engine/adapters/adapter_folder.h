#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// Which files an adapter consists of and when they changed last: equal where nobody has written
/// to them, nor put others in their place.
struct FileStamp {
  std::string name;
  uint64_t device = 0, file = 0;
  int64_t size = 0, written_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
using FileStamps = std::vector<FileStamp>;

/// Of the folder of an adapter, or of its GGUF file.
[[nodiscard]] FileStamps stamps_of(const std::string& path);

/// A folder with adapters that are found by name. It is not listed: what is in it costs nothing
/// until it is asked for.
class AdapterFolder {
 public:
  /// Throws Error unless it is a folder.
  explicit AdapterFolder(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Where the adapter of this name is: the folder, or the file that has the name or the name and
  /// ".gguf". Throws Error where there is none, where a name is no name of a file (with '/', a NUL
  /// byte, "." or ".."), and where it or a file in it is a link that leads out of the folder.
  [[nodiscard]] std::string find(const std::string& name) const;

 private:
  void check_inside(const std::filesystem::path& place, const std::string& name) const;

  std::string path_;
  std::filesystem::path real_;  // without links
};

/// Asks the system to read the adapter's weights into its cache; returns at once.
void read_ahead(const std::string& path) noexcept;

}  // namespace heddle
