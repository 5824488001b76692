#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "files/bounded_open.h"
#include "files/file_stamps.h"

namespace heddle {

/// Of the files that an adapter consists of: those of its folder that are read, or its GGUF file.
[[nodiscard]] files::FileStamps stamps_of(const std::string& path);

/// A number for what the files say but for the values of tensors, which differs where they do.
[[nodiscard]] uint64_t digest_of(const std::string& path, const files::FolderBounds& bounds);

/// A folder with adapters that are found by name. It is not listed: an adapter costs nothing until
/// a request names it.
class AdapterFolder {
 public:
  /// Throws Error unless it is a folder.
  explicit AdapterFolder(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Where the adapter of this name is: the folder, or the file that has the name or the name and
  /// ".gguf". Throws Error where there is none, where a name is no name of a file (with '/', a NUL
  /// byte, "." or ".."), and where it or a file in it is a link that leads out of its bounds.
  [[nodiscard]] std::string find(const std::string& name) const;
  /// Whether anything in the folder has such a name.
  [[nodiscard]] bool has(const std::string& name) const { return !place_of(name).empty(); }
  /// Where the files of an adapter at this path must lie: in this folder if it does, or, where it
  /// is a link of this folder into a cache of the Hugging Face hub, in the cache's folder of that
  /// adapter. None of a path elsewhere. Throws Error for a link of this folder that leads to
  /// neither.
  [[nodiscard]] files::FolderBounds bounds_of(const std::string& path) const;

 private:
  [[nodiscard]] std::string place_of(const std::string& name) const;

  std::string path_;
  std::filesystem::path real_;  // without links
};

/// Folders of adapters, the first of which goes first.
class AdapterFolders {
 public:
  /// Empty paths are left out. Throws Error unless the others are folders.
  explicit AdapterFolders(const std::vector<std::string>& paths);

  [[nodiscard]] bool is_empty() const { return folders_.empty(); }
  /// AdapterFolder::find of the first that has the adapter; where none has it, the error of the
  /// first.
  [[nodiscard]] std::string find(const std::string& name) const;
  /// AdapterFolder::bounds_of of the folder that the path belongs to.
  [[nodiscard]] files::FolderBounds bounds_of(const std::string& path) const;

 private:
  std::vector<AdapterFolder> folders_;
};

/// Lets the system read the adapter's weights into its cache; returns at once.
void read_ahead(const std::string& path) noexcept;

}  // namespace heddle
