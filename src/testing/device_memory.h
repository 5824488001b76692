#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"

namespace heddle::testing {

/// Memory of the current CUDA device. Copies wait for all work of the device first, whatever its
/// stream.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

  void write(size_t offset, const void* from, size_t bytes);
  void read(size_t offset, void* to, size_t bytes) const;
  void fill(size_t offset, unsigned char value, size_t bytes);
  /// How many of the bytes differ from `value`; counted on the device, so that gigabytes can be
  /// checked.
  [[nodiscard]] uint64_t count_other(size_t offset, unsigned char value, size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A stream of the current CUDA device that does not wait for the default stream.
class DeviceStream {
 public:
  DeviceStream();
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const;

 private:
  cudaStream_t stream_ = nullptr;
};

/// The index of the current CUDA device.
[[nodiscard]] int current_device();

}  // namespace heddle::testing
