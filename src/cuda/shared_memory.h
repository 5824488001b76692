#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/check.h"

namespace heddle::cuda {

/// Shared memory that a block can have, a kernel's own and dynamic: on every chip from 8.0 on, and
/// on those of 9.x and 10.x.
inline constexpr int kPortableSharedBytes = 99 * 1024;
inline constexpr int kLargeSharedBytes = 227 * 1024;

/// Before kKernel is launched with `bytes` of dynamic shared memory on `device`, the current one:
/// at most kBytes, or kLargeBytes on chips of 9.x and 10.x. The attribute is set once per device,
/// and not again after a cudaDeviceReset. Compiled as it is: tools/check_shared_memory.py reads
/// both limits from the names of the instances.
template <auto kKernel, int kBytes, int kLargeBytes = kBytes>
[[gnu::noipa]] void allow_shared_memory(int device, int bytes = kBytes) {
  static_assert(kBytes <= kPortableSharedBytes && kBytes <= kLargeBytes &&
                kLargeBytes <= kLargeSharedBytes);
  static std::array<std::atomic<uint64_t>, 2> told{};  // kBytes, kLargeBytes: the first 64 devices
  const bool is_large = bytes > kBytes;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if (((told[is_large] | told[1]) & bit) != 0) return;
  HEDDLE_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         is_large ? kLargeBytes : kBytes));
  told[is_large] |= bit;
}

}  // namespace heddle::cuda
