#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "heddle/core/context.h"

namespace heddle {

/// Gives memory back to where allocate_zeroed took it from.
struct FreeDeviceBytes {
  DeviceType type = DeviceType::kCpu;
  size_t bytes = 0;
  cudaStream_t stream = nullptr;  // of a DevicePool: it is freed in the order of this stream
  void operator()(std::byte* memory) const noexcept;
};

/// Memory of one device with its owner; zero when made.
using DeviceBytes = std::unique_ptr<std::byte[], FreeDeviceBytes>;

/// How memory of the CPU is divided. In huge pages of 2 MiB a processor finds the address of what
/// it reads sooner: for weights, which are written whole and read in every step. In small ones less
/// memory is taken where only parts are written.
enum class HostPages : uint8_t { kSmall, kHuge };

/// `bytes` of zeroed memory, 64-byte aligned. On the CPU a large piece is address space at first:
/// memory is taken page by page, as each page is first written. Throws what query_device throws,
/// and kOutOfMemory.
[[nodiscard]] DeviceBytes allocate_zeroed(Device device, size_t bytes,
                                          HostPages pages = HostPages::kSmall);

/// Bytes of memory of a CUDA device that can still be taken. Throws what query_device throws.
[[nodiscard]] int64_t available_bytes(Device device);

struct FreeStagingBytes {
  bool is_pinned = false;
  void operator()(std::byte* memory) const noexcept;
};

/// Pinned host memory for asynchronous copies; zero when made. For the CPU ordinary memory.
class StagingBytes {
 public:
  StagingBytes() = default;
  StagingBytes(Device device, size_t bytes);
  [[nodiscard]] std::byte* get() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[], FreeStagingBytes> memory_;
};

struct UnpinHost {
  void operator()(std::byte* memory) const noexcept;
};

/// Memory of the host while it is page-locked. It does not own it.
using PinnedHost = std::unique_ptr<std::byte, UnpinHost>;

/// Page-locks memory of the host, so that copies of a GPU reach it as they do staging memory; for
/// the CPU it does nothing. Throws kOutOfMemory where the system refuses.
[[nodiscard]] PinnedHost pin_host(Device device, std::span<std::byte> memory);

/// Begins a copy of staging memory to memory of ctx.device, or back, in the order of ctx.stream; on
/// the CPU it is done when they return.
void begin_copy_from_host(const ExecContext& ctx, std::byte* to, std::span<const std::byte> from);
void begin_copy_to_host(const ExecContext& ctx, std::span<std::byte> to, const std::byte* from);
/// Between two places in memory of ctx.device that do not overlap, in the order of ctx.stream.
void begin_copy_within(const ExecContext& ctx, std::byte* to, std::span<const std::byte> from);
/// Those to and from the host by a kernel, for the few bytes that a step needs: a device makes the
/// copies of all streams one after another, so that a step would wait for pages that are being
/// copied. Whole words of 4 bytes, 16-byte aligned.
void begin_word_copy_from_host(const ExecContext& ctx, std::byte* to,
                               std::span<const std::byte> from);
void begin_word_copy_to_host(const ExecContext& ctx, std::span<std::byte> to,
                             const std::byte* from);

/// Copies from host memory to memory of ctx.device, and back, in the order of ctx.stream. Done when
/// they return.
void copy_from_host(const ExecContext& ctx, std::byte* to, std::span<const std::byte> from);
void copy_to_host(const ExecContext& ctx, std::span<std::byte> to, const std::byte* from);

}  // namespace heddle
