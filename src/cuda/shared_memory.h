#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/check.h"

namespace heddle::cuda {

/// Shared memory that a block can have, of a kernel's own and dynamic, on every chip from 8.0 on, and on those of 9.0.
inline constexpr int kPortableSharedBytes = 99 * 1024;
inline constexpr int kHopperSharedBytes = 227 * 1024;

/// Lets kKernel be launched with kBytes of dynamic shared memory on `device`, which is the current one. The runtime is told once
/// per device, and not again after a cudaDeviceReset. Kernels of X_sm90.cu give kHopperSharedBytes as kLimit.
/// Not inlined: tools/check_shared_memory.py reads kBytes from the names of the instances.
template <auto kKernel, int kBytes, int kLimit = kPortableSharedBytes>
[[gnu::noinline]] void allow_shared_memory(int device) {
  static_assert(kBytes <= kLimit);
  static std::atomic<uint64_t> told{0};  // a bit for each of the first 64 devices
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((told.load(std::memory_order_acquire) & bit) != 0) return;
  HEDDLE_CUDA_CHECK(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  told.fetch_or(bit, std::memory_order_release);
}

}  // namespace heddle::cuda
