#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/check.h"

namespace heddle::testing {

/// Reads all; writes nothing but what it takes to keep the reads.
static __global__ void plain_read_kernel(const uint4* from, size_t count, uint32_t* to) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  uint32_t sum = 0;
#pragma unroll 8
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 v = from[i];
    sum |= v.x | v.y | v.z | v.w;
  }
  if (sum == 0xffffffffu) *to = sum;
}

/// Plain reads of num_bytes, a multiple of 16, of the current device's memory, on the stream: what
/// no step can do without. `memory` has no word of ones alone.
inline void launch_plain_reads(std::byte* memory, size_t num_bytes, cudaStream_t stream) {
  constexpr int kThreads = 256, kBlocksPerSm = 8;
  int device = 0, num_sms = 0;
  HEDDLE_CUDA_CHECK(cudaGetDevice(&device));
  HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device));
  plain_read_kernel<<<num_sms * kBlocksPerSm, kThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(memory), num_bytes / sizeof(uint4),
      reinterpret_cast<uint32_t*>(memory));
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::testing
