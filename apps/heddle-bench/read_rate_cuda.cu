// Plain reads of a GPU's memory: what no step can do without.
#include <memory>

#include "cuda/check.h"
#include <cuda_runtime.h>

#include "read_rate.h"

namespace heddle::app {
namespace {

constexpr int kThreads = 256, kBlocksPerSm = 8;

/// Reads all; writes nothing but what it takes to keep the reads.
__global__ void read_kernel(const uint4* from, int64_t count, uint32_t* to) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  uint32_t sum = 0;
#pragma unroll 8
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 v = from[i];
    sum |= v.x | v.y | v.z | v.w;
  }
  if (sum == 0xffffffffu) *to = sum;
}

struct FreeMemory {
  void operator()(uint4* memory) const { cudaFree(memory); }
};

}  // namespace

std::vector<double> time_cuda_reads(int64_t num_bytes, int num_samples) {
  int device = 0, num_sms = 0;
  HEDDLE_CUDA_CHECK(cudaGetDevice(&device));
  HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device));
  uint4* memory = nullptr;
  HEDDLE_CUDA_CHECK(cudaMalloc(&memory, static_cast<size_t>(num_bytes)));
  const std::unique_ptr<uint4, FreeMemory> owner(memory);
  HEDDLE_CUDA_CHECK(cudaMemset(memory, 0x35, static_cast<size_t>(num_bytes)));
  cudaEvent_t begin = nullptr, end = nullptr;
  HEDDLE_CUDA_CHECK(cudaEventCreate(&begin));
  HEDDLE_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> samples;
  for (int sample = -1; sample < num_samples; ++sample) {
    HEDDLE_CUDA_CHECK(cudaEventRecord(begin));
    read_kernel<<<num_sms * kBlocksPerSm, kThreads>>>(
        memory, num_bytes / static_cast<int64_t>(sizeof(uint4)),
        reinterpret_cast<uint32_t*>(memory));
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    HEDDLE_CUDA_CHECK(cudaEventRecord(end));
    HEDDLE_CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    HEDDLE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (sample >= 0) samples.push_back(1e-3 * double{milliseconds});
  }
  HEDDLE_CUDA_CHECK(cudaEventDestroy(begin));
  HEDDLE_CUDA_CHECK(cudaEventDestroy(end));
  return samples;
}

}  // namespace heddle::app
