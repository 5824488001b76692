#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/page_record.h"

namespace heddle {

/// Why a folder of pages cannot be used now, though nothing is wrong with its choice: what() is one
/// sentence, and an engine goes on without it.
class PageFolderFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file descriptor with its owner.
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int descriptor) : descriptor_(descriptor) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnedDescriptor();
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// The files of a folder in which pages are kept (docs/design/kv_folder.md): heddle_kv_index, a
/// record for each page, and heddle_kv_pages, their bytes; heddle_kv_lock keeps other processes
/// out. They are read and written by calls and never mapped.
class PageFolder {
 public:
  struct Shape {
    int64_t max_bytes = 0;  // of all files
    int64_t page_bytes = 0;
    int page_size = 0;
  };
  using OnWarning = std::function<void(const std::string&)>;

  /// Opens a folder, which is made where there is none. Files that are damaged, of another version
  /// or of another identity are emptied, and on_warning says why. Throws Error where the folder is
  /// a link, no folder, not owned by this user or one that others may write to, and where max_bytes
  /// do not hold a page; PageFolderFault where another process has it, and for what the system
  /// refuses.
  PageFolder(const std::string& path, std::string identity, const Shape& shape,
             const OnWarning& on_warning);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const PageSecret& secret() const { return header_.secret; }
  /// Pages that max_bytes hold.
  [[nodiscard]] int64_t num_slots() const { return num_slots_; }

  /// The good records with their slots; on_warning says how many are damaged.
  [[nodiscard]] std::vector<std::pair<int64_t, PageRecord>> read_records(
      const OnWarning& on_warning) const;

  // What follows returns 0 or the system's error number and takes no memory; one thread may call
  // it.

  /// Frees the slot, writes the page [page_bytes] and then its record [record_bytes]. ESTALE where
  /// somebody has removed the files.
  [[nodiscard]] int write_page(int64_t slot, std::span<const std::byte> record,
                               std::span<const std::byte> page) noexcept;
  [[nodiscard]] int write_record(int64_t slot, std::span<const std::byte> record) noexcept;
  /// ENODATA where the file ends before.
  [[nodiscard]] int read_page(int64_t slot, std::span<std::byte> page) noexcept;
  /// Its page is not found any more when the folder is opened again.
  int free_slot(int64_t slot) noexcept;
  int free_all() noexcept;

 private:
  void open_folder();
  void lock();
  [[nodiscard]] OwnedDescriptor open_file(const char* name, int flags) const;
  /// Whether the files are of this identity; on_warning says why not.
  [[nodiscard]] bool read_header_of_index(const OnWarning& on_warning);
  void begin_anew();
  [[nodiscard]] int64_t record_offset(int64_t slot) const;
  [[nodiscard]] std::string file_path(const char* name) const { return path_ + "/" + name; }
  [[nodiscard]] bool was_removed() const noexcept;

  std::string path_;
  Shape shape_;
  IndexHeader header_;
  int64_t record_bytes_, first_record_, num_slots_;
  std::vector<std::byte> no_record_;  // what a free slot has
  OwnedDescriptor folder_, lock_, index_, pages_;
};

}  // namespace heddle
