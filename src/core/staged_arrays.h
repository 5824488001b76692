#pragma once

#include <span>
#include <vector>

#include "core/device_tensor.h"
#include "core/math.h"

namespace heddle {

/// Small arrays that the host makes anew for every step and a device reads. They lie one behind
/// another in one piece of memory of that device, always the same, so a step costs one copy:
///   arrays.clear();
///   const ConstTensorView ids = arrays.add(token_ids), ...;
///   arrays.copy(ctx);  // from here on calls may read the views
class StagedArrays {
 public:
  StagedArrays(Device device, size_t capacity_bytes);

  /// Room that an array of n elements of T may take, padding included.
  template <class T>
  [[nodiscard]] static constexpr size_t bytes_for(int64_t n) {
    return padded(static_cast<size_t>(n) * sizeof(T));
  }

  /// Forgets all arrays; their views are then other arrays' memory.
  void clear() { used_ = 0; }
  /// Keeps a copy of the values until `copy`; the result [size] is where they lie then. Throws
  /// kOutOfMemory when there is no room.
  template <class T>
  [[nodiscard]] ConstTensorView add(std::span<const T> values) {
    return {place(std::as_bytes(values)), kDType<T>, device_, {std::ssize(values)}};
  }
  template <class T>
  [[nodiscard]] ConstTensorView add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  /// Brings all arrays to the device.
  void copy(const ExecContext& ctx) const;

 private:
  static constexpr size_t kAlignment = 64;
  [[nodiscard]] static constexpr size_t padded(size_t bytes) { return round_up(bytes, kAlignment); }
  [[nodiscard]] const std::byte* place(std::span<const std::byte> values);

  Device device_;
  size_t capacity_bytes_, used_ = 0;
  DeviceBytes memory_;
  std::vector<std::byte> staging_;  // empty where the host writes the device's memory itself
};

}  // namespace heddle
