#include <algorithm>
#include <utility>

#include "cuda/check.h"

#include "device_memory.h"

namespace heddle::testing {
namespace {

constexpr int kBlockSize = 256;

// *count += number of i in [0, bytes) with data[i] != value. Each thread takes every (blocks *
// kBlockSize)-th byte and adds its sum once. Any grid; blocks of kBlockSize threads.
__global__ void __launch_bounds__(kBlockSize)
    count_other_kernel(const unsigned char* data, size_t bytes, unsigned char value,
                       unsigned long long* count) {
  unsigned long long other = 0;
  const size_t step = size_t{gridDim.x} * kBlockSize;
  for (size_t i = size_t{blockIdx.x} * kBlockSize + threadIdx.x; i < bytes; i += step) {
    other += data[i] != value;
  }
  if (other != 0) atomicAdd(count, other);
}

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) : size_(bytes) {
  if (bytes > 0) HEDDLE_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), bytes));
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void DeviceMemory::write(size_t offset, const void* from, size_t bytes) {
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  HEDDLE_CUDA_CHECK(cudaMemcpy(data_ + offset, from, bytes, cudaMemcpyHostToDevice));
  // A small copy from pageable memory may return before the device has it, and streams of tests do
  // not wait for it.
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
}

void DeviceMemory::read(size_t offset, void* to, size_t bytes) const {
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  HEDDLE_CUDA_CHECK(cudaMemcpy(to, data_ + offset, bytes, cudaMemcpyDeviceToHost));
}

void DeviceMemory::fill(size_t offset, unsigned char value, size_t bytes) {
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  HEDDLE_CUDA_CHECK(cudaMemset(data_ + offset, value, bytes));
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
}

uint64_t DeviceMemory::count_other(size_t offset, unsigned char value, size_t bytes) const {
  if (bytes == 0) return 0;
  DeviceMemory counter(sizeof(unsigned long long));
  counter.fill(0, 0, counter.size());
  const auto blocks = static_cast<unsigned>(std::min<size_t>((bytes - 1) / kBlockSize + 1, 4096));
  count_other_kernel<<<blocks, kBlockSize>>>(reinterpret_cast<const unsigned char*>(data_ + offset),
                                             bytes, value,
                                             reinterpret_cast<unsigned long long*>(counter.data()));
  HEDDLE_CUDA_CHECK(cudaGetLastError());
  unsigned long long count = 0;
  counter.read(0, &count, sizeof(count));
  return count;
}

DeviceStream::DeviceStream() {
  HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}
DeviceStream::~DeviceStream() { cudaStreamDestroy(stream_); }
void DeviceStream::wait() const { HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

int current_device() {
  int index = 0;
  HEDDLE_CUDA_CHECK(cudaGetDevice(&index));
  return index;
}

}  // namespace heddle::testing
