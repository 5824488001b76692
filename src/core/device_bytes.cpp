#include "core/device_bytes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "core/cuda_device.h"
#include "core/math.h"

namespace heddle {
namespace {

constexpr size_t kAlignment = 64;
/// Pieces from here on are mapped: the system zeroes a page when it is first touched. Smaller ones
/// would waste too much of their last page, and in the heap the address sanitizer sees a read past
/// their end.
constexpr size_t kMappedBytes = size_t{64} << 10;
constexpr size_t kHugePageBytes = size_t{2} << 20;

std::byte* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

/// As map, from a multiple of kHugePageBytes on. What is left at the end is in small pages.
std::byte* map_in_huge_pages(size_t bytes) {
  const size_t needed = round_up(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  std::byte* const mapped = map(needed + kHugePageBytes);
  if (mapped == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const size_t before = round_up(address, kHugePageBytes) - address;
  std::byte* const memory = mapped + before;
  if (before > 0) munmap(mapped, before);
  if (before < kHugePageBytes) munmap(memory + needed, kHugePageBytes - before);
#ifdef MADV_HUGEPAGE
  madvise(memory, needed, MADV_HUGEPAGE);  // where a system has none, small ones serve
#endif
  return memory;
}

std::byte* allocate_on_host(size_t bytes, HostPages pages) {
  if (pages == HostPages::kHuge && bytes >= kHugePageBytes) return map_in_huge_pages(bytes);
  if (bytes >= kMappedBytes) return map(bytes);
  const size_t rounded = std::max(round_up(bytes, kAlignment), kAlignment);
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory != nullptr) std::memset(memory, 0, rounded);
  return static_cast<std::byte*>(memory);
}

void free_on_host(std::byte* memory, size_t bytes) noexcept {
  if (bytes >= kMappedBytes) {
    munmap(memory, bytes);
  } else {
    std::free(memory);
  }
}

}  // namespace

void FreeDeviceBytes::operator()(std::byte* memory) const noexcept {
  if (type == DeviceType::kCpu) {
    free_on_host(memory, bytes);
  } else if constexpr (kWithCuda) {
    stream == nullptr ? cuda::free_memory(memory) : cuda::free_in_order(memory, stream);
  }
}

DeviceBytes allocate_zeroed(Device device, size_t bytes, HostPages pages) {
  std::byte* memory = nullptr;
  if (device.type == DeviceType::kCpu) {
    memory = allocate_on_host(bytes, pages);
    if (memory == nullptr) {
      throw_error(ErrorCode::kOutOfMemory, "cannot get ", bytes, " bytes of memory on ", device);
    }
  } else {
    (void)query_device(device);  // refuses one that is not there
    if constexpr (kWithCuda) memory = cuda::allocate_zeroed(device.index, bytes);
  }
  return {memory, {.type = device.type, .bytes = bytes}};
}

int64_t available_bytes(Device device) {
  (void)query_device(device);  // refuses one that is not there
  if constexpr (kWithCuda) return cuda::available_bytes(device.index);
  return 0;
}

StagingBytes::StagingBytes(Device device, size_t bytes) {
  const bool is_pinned = device.type == DeviceType::kCuda;
  std::byte* memory = nullptr;
  if (!is_pinned) {
    memory = new std::byte[bytes]();
  } else if constexpr (kWithCuda) {
    memory = cuda::allocate_pinned(bytes);
  }
  memory_ = {memory, FreeStagingBytes{is_pinned}};
}

void FreeStagingBytes::operator()(std::byte* memory) const noexcept {
  if (!is_pinned) {
    delete[] memory;
  } else if constexpr (kWithCuda) {
    cuda::free_pinned(memory);
  }
}

void UnpinHost::operator()([[maybe_unused]] std::byte* memory) const noexcept {
  if constexpr (kWithCuda) cuda::unpin(memory);
}

PinnedHost pin_host([[maybe_unused]] Device device, [[maybe_unused]] std::span<std::byte> memory) {
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) {
      cuda::pin(memory);
      return PinnedHost(memory.data());
    }
  }
  return nullptr;
}

void begin_copy_from_host(const ExecContext& ctx, std::byte* to, std::span<const std::byte> from) {
  if (ctx.device.type == DeviceType::kCpu) {
    std::ranges::copy(from, to);
  } else if constexpr (kWithCuda) {
    cuda::begin_copy_from_host(to, from, ctx.stream);
  }
}

void begin_copy_to_host(const ExecContext& ctx, std::span<std::byte> to, const std::byte* from) {
  if (ctx.device.type == DeviceType::kCpu) {
    std::copy_n(from, to.size(), to.data());
  } else if constexpr (kWithCuda) {
    cuda::begin_copy_to_host(to, from, ctx.stream);
  }
}

void begin_copy_within(const ExecContext& ctx, std::byte* to, std::span<const std::byte> from) {
  if (ctx.device.type == DeviceType::kCpu) {
    std::ranges::copy(from, to);
  } else if constexpr (kWithCuda) {
    cuda::begin_copy_within(to, from, ctx.stream);
  }
}

void begin_word_copy_from_host(const ExecContext& ctx, std::byte* to,
                               std::span<const std::byte> from) {
  if (ctx.device.type == DeviceType::kCpu) return begin_copy_from_host(ctx, to, from);
  if constexpr (kWithCuda) cuda::begin_word_copy(to, from.data(), from.size(), ctx.stream);
}

void begin_word_copy_to_host(const ExecContext& ctx, std::span<std::byte> to,
                             const std::byte* from) {
  if (ctx.device.type == DeviceType::kCpu) return begin_copy_to_host(ctx, to, from);
  if constexpr (kWithCuda) cuda::begin_word_copy(to.data(), from, to.size(), ctx.stream);
}

void copy_from_host(const ExecContext& ctx, std::byte* to, std::span<const std::byte> from) {
  if (ctx.device.type == DeviceType::kCpu) {
    std::ranges::copy(from, to);
  } else if constexpr (kWithCuda) {
    cuda::copy_from_host(to, from, ctx.stream);
  }
}

void copy_to_host(const ExecContext& ctx, std::span<std::byte> to, const std::byte* from) {
  if (ctx.device.type == DeviceType::kCpu) {
    std::copy_n(from, to.size(), to.data());
  } else if constexpr (kWithCuda) {
    cuda::copy_to_host(to, from, ctx.stream);
  }
}

}  // namespace heddle
