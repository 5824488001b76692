// Plain reads of a GPU's memory: what no step can do without.
#include <memory>

#include "cuda/check.h"
#include <cuda_runtime.h>

#include "read_rate.h"
#include "testing/bench/plain_reads_cuda.h"

namespace heddle::app {
namespace {

struct FreeMemory {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};

}  // namespace

std::vector<double> time_cuda_reads(int64_t num_bytes, int num_samples) {
  std::byte* memory = nullptr;
  HEDDLE_CUDA_CHECK(cudaMalloc(&memory, static_cast<size_t>(num_bytes)));
  const std::unique_ptr<std::byte, FreeMemory> owner(memory);
  HEDDLE_CUDA_CHECK(cudaMemset(memory, 0x35, static_cast<size_t>(num_bytes)));
  cudaEvent_t begin = nullptr, end = nullptr;
  HEDDLE_CUDA_CHECK(cudaEventCreate(&begin));
  HEDDLE_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> samples;
  for (int sample = -1; sample < num_samples; ++sample) {
    HEDDLE_CUDA_CHECK(cudaEventRecord(begin));
    testing::launch_plain_reads(memory, static_cast<size_t>(num_bytes), nullptr);
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
