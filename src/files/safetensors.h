#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/core/dtype.h"

#include "files/open_file.h"
#include "files/reserved_bytes.h"

namespace heddle::files {

/// One tensor of a safetensors file, row-major without gaps. The data may lie at any address: no
/// alignment is promised. Of a file on disk they are readable from SafetensorsFile::load on.
struct SafetensorsTensor {
  std::string name;
  std::string dtype_name;  // as in the file, e.g. "BF16"
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// "[576, 8]"
[[nodiscard]] std::string shape_text(std::span<const int64_t> shape);

/// A safetensors file. Its header is read and checked when the object is made. Errors are
/// heddle::Error and begin with the file's name. Views live as long as the object, and survive its
/// moves.
class SafetensorsFile {
 public:
  /// Opens the file and reads its header.
  explicit SafetensorsFile(const std::string& path) : SafetensorsFile(OpenFile(path)) {}
  explicit SafetensorsFile(OpenFile file);
  /// Reads from memory that outlives the object; `name` stands for the path in errors.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& path() const { return name_; }
  /// In the order of their data.
  [[nodiscard]] const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  /// Null where the file has no such tensor.
  [[nodiscard]] const SafetensorsTensor* find(std::string_view name) const;
  /// f32, f16 or bf16; Error(kUnsupported) that names tensor and type for any other.
  [[nodiscard]] DType dtype(const SafetensorsTensor& tensor) const;
  /// Reads the data of all tensors into memory.
  void load();
  /// Reads as many bytes of the tensor from `first` on (OpenFile::read), loaded or not.
  void read(const SafetensorsTensor& tensor, size_t first, std::span<std::byte> to) const;
  /// The strings under "__metadata__".
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void read_head();
  void parse();
  void check_layout() const;

  std::optional<OpenFile> file_;
  std::vector<std::byte> head_;              // of the file on disk
  ReservedBytes values_;                     // for the data of the file on disk
  std::span<const std::byte> bytes_, data_;  // what is in memory from the start on; the data
  uint64_t size_ = 0, data_begin_ = 0;       // of the file, and where its data begins
  std::string name_;
  std::vector<SafetensorsTensor> tensors_;
  std::unordered_map<std::string_view, size_t>
      index_;  // views of names, which no move of tensors_ disturbs
  std::map<std::string, std::string> metadata_;
};

}  // namespace heddle::files
