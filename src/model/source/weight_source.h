#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ops/linear.h"

namespace heddle::model {

/// A matrix as a model's files hold it, rows one behind another; a vector has one row.
struct StoredTensor {
  std::string_view name;
  const std::string* path = nullptr;  // of its file
  int rank = 0;
  int64_t rows = 1, columns = 1;
  WeightType type = WeightType::kF32;
  std::span<const std::byte> data;  // any alignment
};

/// The tensors of a model, whatever files they lie in.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// What errors about the model as a whole begin with.
  [[nodiscard]] virtual const std::string& path() const = 0;
  [[nodiscard]] virtual bool contains(std::string_view name) const = 0;
  /// Error where there is no such tensor, or its dtype is not one that heddle has.
  [[nodiscard]] virtual StoredTensor tensor(std::string_view name) const = 0;
  [[nodiscard]] virtual std::vector<std::string_view> names() const = 0;
  /// Gives back the memory of bytes [first, first + length) of the tensor, which are read from the
  /// file again when touched.
  virtual void release(const StoredTensor& tensor, size_t first, size_t length) const = 0;
  /// Reads as many bytes of the tensor from `first` on, without touching its data, so that there is
  /// nothing to give back. Any threads may do so at once.
  virtual void read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const = 0;
};

}  // namespace heddle::model
