#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "heddle/core/context.h"

#include "core/device_bytes.h"
#include "core/device_graph.h"

namespace heddle::model {

/// Brings weights to a GPU in pieces: while the copy of one is in flight, the host writes the next
/// one into page-locked memory. The device must be the calling thread's.
class WeightUpload {
 public:
  explicit WeightUpload(const ExecContext& ctx);

  /// Where the next piece is to be written; waits for the copy of the last but one.
  [[nodiscard]] std::span<std::byte> next(size_t num_bytes);
  /// Begins to copy what was written there.
  void send(std::byte* to);
  /// Waits for all copies.
  void finish();

 private:
  struct Buffer {
    explicit Buffer(Device device) : copied(device) {}
    StagingBytes memory;
    size_t capacity = 0;
    DeviceEvent copied;
  };

  const ExecContext& ctx_;
  std::array<Buffer, 2> buffers_;
  size_t current_ = 0;
  std::span<std::byte> piece_;
};

}  // namespace heddle::model
