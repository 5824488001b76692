#include <algorithm>

#include "cuda/check.h"

#include "core/cuda_device.h"
#include "core/math.h"

namespace heddle::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 64;  // as many loads as the link to the host takes at once

/// Four words a thread, then the rest. The host's memory is not cached: it changes between copies.
__global__ void __launch_bounds__(kThreads)
    copy_words_kernel(uint32_t* to, const uint32_t* from, int64_t num_words) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t num_threads = int64_t{gridDim.x} * kThreads, num_vectors = num_words / 4;
  for (int64_t i = thread; i < num_vectors; i += num_threads) {
    reinterpret_cast<uint4*>(to)[i] = __ldcv(reinterpret_cast<const uint4*>(from) + i);
  }
  const int64_t last = 4 * num_vectors + thread;
  if (last < num_words) to[last] = __ldcv(from + last);
}

}  // namespace

void begin_word_copy(std::byte* to, const std::byte* from, size_t bytes, cudaStream_t stream) {
  const auto num_words = static_cast<int64_t>(bytes / sizeof(uint32_t));
  if (num_words == 0) return;
  const int64_t blocks =
      std::clamp<int64_t>(ceil_div(num_words / 4, int64_t{kThreads}), 1, kMaxBlocks);
  copy_words_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      reinterpret_cast<uint32_t*>(to), reinterpret_cast<const uint32_t*>(from), num_words);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda
