#pragma once

#include <memory>

#include "heddle/ops/linear.h"

#include "bindings/call.h"

namespace heddle::python {

/// Owner of a packed weight: heddle.PackedWeight.
class OwnedWeight {
 public:
  /// stored: bytes as a file holds them (u8, of any shape without gaps), or for the dense types a
  /// matrix of that dtype.
  OwnedWeight(nb::handle stored, const char* type, int64_t out_features, int64_t in_features);

  [[nodiscard]] const PackedWeight& view() const { return view_; }
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  size_t num_bytes_;
  std::unique_ptr<std::byte[], Free> data_;
  PackedWeight view_;
};

/// The type of a name such as "Q4_K".
[[nodiscard]] WeightType weight_type_named(const char* wanted);

/// The bytes of a tensor without gaps that holds whole stored rows of `type`.
[[nodiscard]] std::span<const std::byte> stored_bytes_of(const ConstTensorView& stored,
                                                         WeightType type);

}  // namespace heddle::python
