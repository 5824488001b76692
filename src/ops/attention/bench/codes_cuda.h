#pragma once

// Caches of f8e4m3 for the benches: random codes, none of which is NaN, and scales from 1/128 to
// 1/64.

#include <cstddef>
#include <cstdint>

#include "cuda/check.h"

namespace heddle {

/// Words that look random, with bits of `mask` alone, and `base`.
__global__ void fill_words(uint32_t* words, int64_t count, uint32_t mask, uint32_t base) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    uint32_t bits = static_cast<uint32_t>(i) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    words[i] = ((bits ^ bits >> 13) & mask) | base;
  }
}

/// count: a multiple of 4. Waits.
inline void fill_codes(std::byte* codes, int64_t count) {
  fill_words<<<1024, 256>>>(reinterpret_cast<uint32_t*>(codes), count / 4, 0xbfbfbfbfu, 0);
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
}
inline void fill_scales(std::byte* scales, int64_t count) {
  fill_words<<<1024, 256>>>(reinterpret_cast<uint32_t*>(scales), count, 0x007fffffu, 0x3c000000u);
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace heddle
