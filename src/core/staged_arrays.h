#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "core/math.h"

namespace heddle {

/// Small arrays that the host makes anew for every step and a device reads. They lie one after
/// another in one piece of memory of that device, always the same, so a step costs one copy:
///   arrays.clear();
///   const ConstTensorView ids = arrays.add(token_ids), ...;
///   arrays.copy(ctx);  // from here on calls may read the views
/// On a GPU the host does not wait for the copy; `clear` waits for that of two steps before.
class StagedArrays {
 public:
  StagedArrays(Device device, size_t capacity_bytes);

  /// Room that an array of n elements of T may take, padding included.
  template <class T>
  [[nodiscard]] static constexpr size_t bytes_for(int64_t n) {
    return padded(static_cast<size_t>(n) * sizeof(T));
  }

  /// Forgets all arrays; their views are then other arrays' memory.
  void clear();
  /// Keeps a copy of the values until `copy`; the result [size] is where they lie then. Throws
  /// kOutOfMemory when there is no room.
  template <class T>
  [[nodiscard]] ConstTensorView add(std::span<const T> values) {
    return {place(std::as_bytes(values), values.size_bytes()),
            kDType<T>,
            device_,
            {std::ssize(values)}};
  }
  template <class T>
  [[nodiscard]] ConstTensorView add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  /// `add` with room for `size` values in all, so that what is added next always lies in one
  /// place. What follows the values is left over from before.
  template <class T>
  [[nodiscard]] ConstTensorView add(const std::vector<T>& values, int64_t size) {
    return {place(std::as_bytes(std::span(values)), static_cast<size_t>(size) * sizeof(T)),
            kDType<T>,
            device_,
            {size}};
  }
  /// Brings all arrays to the device, in the order of ctx.stream.
  void copy(const ExecContext& ctx);

 private:
  static constexpr size_t kAlignment = 64;
  [[nodiscard]] static constexpr size_t padded(size_t bytes) { return round_up(bytes, kAlignment); }
  [[nodiscard]] const std::byte* place(std::span<const std::byte> values, size_t room);

  /// What a copy reads, and the event after it.
  struct Staging {
    StagingBytes memory;
    DeviceEvent copied;
  };

  Device device_;
  size_t capacity_bytes_, used_ = 0;
  size_t filled_ = 0;  // up to the last of the values
  DeviceBytes memory_;
  std::vector<Staging> staging_;  // two in turn; none where the host writes the memory itself
  size_t current_ = 0;
};

}  // namespace heddle
