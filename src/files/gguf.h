#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/ops/linear.h"

#include "files/gguf_types.h"
#include "files/open_file.h"

namespace heddle::files {

/// One metadata value, still in the file's bytes. For an array `type` is that of its elements.
struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::kUInt8;
  bool is_array = false;
  uint64_t count = 1;  // elements of an array
  /// Exactly the elements: numbers one after the other, strings each after its u64 length.
  std::span<const std::byte> bytes;
};

/// One tensor's place in the file. A matrix [out_features, in_features] has dims {in_features,
/// out_features}: the first is the contiguous one. Every extent is at least 1.
struct GgufTensor {
  std::string_view name;
  int rank = 0;
  int64_t dims[4] = {1, 1, 1, 1};  // those past the rank are 1
  uint32_t type_id = 0;            // ggml's number; see GgufFile::weight_type
  uint64_t offset = 0;             // from the start of the file
  uint64_t num_bytes = 0;          // 0 where the type is not even known to ggml_type_name

  [[nodiscard]] int64_t num_weights() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

/// A GGUF file, version 2 or 3, little-endian. Its metadata and the places of its tensors are read
/// and checked when the object is made: afterwards each view lies inside the file, and only the
/// wishes of the caller (a key that must be there, its type) can fail. Errors are heddle::Error and
/// begin with the file's name. Views live as long as the object, and survive its moves.
class GgufFile {
 public:
  /// Opens the file and reads all but the tensors' data.
  explicit GgufFile(const std::string& path) : GgufFile(OpenFile(path)) {}
  explicit GgufFile(OpenFile file);
  /// Reads from memory that outlives the object; `name` stands for the path in errors.
  GgufFile(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& path() const { return name_; }
  [[nodiscard]] uint64_t file_size() const { return size_; }
  [[nodiscard]] uint32_t version() const { return version_; }
  [[nodiscard]] uint32_t alignment() const { return alignment_; }

  /// In the file's order.
  [[nodiscard]] const std::vector<GgufValue>& metadata() const { return metadata_; }
  /// Null where the file has no such key.
  [[nodiscard]] const GgufValue* find(std::string_view key) const;

  /// The value of a key. T is bool, std::string_view, an integer type (any integer of the file that
  /// fits is taken) or float or double (f32 and f64 are taken, and integers). A missing key,
  /// another type and a value that does not fit are errors.
  template <class T>
  [[nodiscard]] T get(std::string_view key) const;
  /// As get, but a missing key gives `fallback`.
  template <class T>
  [[nodiscard]] T get_or(std::string_view key, T fallback) const {
    return find(key) != nullptr ? get<T>(key) : fallback;
  }
  /// The elements of an array, with T as in get. One pass over the bytes; strings are views into
  /// the file.
  template <class T>
  [[nodiscard]] std::vector<T> get_array(std::string_view key) const;

  /// In the file's order.
  [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null where the file has no such tensor.
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;
  /// An error where the file has no such tensor.
  [[nodiscard]] const GgufTensor& tensor(std::string_view name) const;

  /// Error(kUnsupported) that names tensor and type where heddle has no such format.
  [[nodiscard]] WeightType weight_type(const GgufTensor& tensor) const;
  /// Reads the stored rows; fails as weight_type and `read` do.
  [[nodiscard]] std::vector<std::byte> data(const GgufTensor& tensor) const;
  /// Reads as many bytes of the tensor from `first` on (OpenFile::read).
  void read(const GgufTensor& tensor, uint64_t first, std::span<std::byte> to) const;

 private:
  class Parser;

  std::optional<OpenFile> file_;
  std::vector<std::byte> head_;       // of the file on disk
  std::span<const std::byte> bytes_;  // what is in memory, from the file's start on
  uint64_t size_ = 0;                 // of the file
  std::string name_;
  uint32_t version_ = 0, alignment_ = 32;
  std::vector<GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> key_index_, tensor_index_;
};

}  // namespace heddle::files
