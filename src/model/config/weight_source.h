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

/// A matrix as a model's files hold it, row after row; a vector has one row.
struct StoredTensor {
  std::string_view name;
  const std::string* path = nullptr;  // of its file
  int rank = 0;
  int64_t rows = 1, columns = 1;
  WeightType type = WeightType::kF32;
  size_t num_bytes = 0;
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
  /// Reads as many bytes of the tensor from `first` on. Any threads may do so at once.
  virtual void read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const = 0;
};

}  // namespace heddle::model
