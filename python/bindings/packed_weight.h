#pragma once

#include "heddle/ops/linear.h"

#include "bindings/call.h"
#include "core/device_bytes.h"

namespace heddle::python {

/// Owner of a packed weight: heddle.PackedWeight.
class OwnedWeight {
 public:
  /// stored: bytes as a file holds them (u8, of any shape without gaps), or for the dense types a
  /// matrix of that dtype.
  OwnedWeight(nb::handle stored, const char* type, int64_t out_features, int64_t in_features);

  /// A copy on that device, complete when this returns.
  [[nodiscard]] OwnedWeight to(Device device) const;

  [[nodiscard]] const PackedWeight& view() const { return view_; }
  /// For a call: also refuses a weight that lies on another device than the call's arrays,
  /// which have been borrowed.
  [[nodiscard]] const PackedWeight& view_for(const Call& call, const char* name) const;
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  /// Room for a weight with the extents of `like`.
  OwnedWeight(Device device, const PackedWeight& like);

  Device device_;
  size_t num_bytes_ = 0;
  DeviceBytes data_;
  PackedWeight view_;
};

/// The packed weight that a Python object is; null: it is something else.
[[nodiscard]] const OwnedWeight* as_packed_weight(nb::handle object);

/// The type of a name such as "Q4_K".
[[nodiscard]] WeightType weight_type_named(const char* wanted);

/// The bytes of a tensor without gaps that holds whole stored rows of `type`.
[[nodiscard]] std::span<const std::byte> stored_bytes_of(const ConstTensorView& stored,
                                                         WeightType type);

}  // namespace heddle::python
