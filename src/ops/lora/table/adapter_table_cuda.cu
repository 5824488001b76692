#include "cuda/check.h"

#include "ops/lora/table/adapter_table_kernels.h"

namespace heddle::cuda::lora {
namespace {

constexpr int kEntryThreads = 128;

// entries[i] = value for i in [0, count). The value is an argument of the launch, so nothing on the
// host has to outlive it, and a captured graph keeps it. One block of kEntryThreads threads.
__global__ void __launch_bounds__(kEntryThreads)
    write_entries_kernel(LoraWeight* entries, int64_t count,
                         const __grid_constant__ LoraWeight value) {
  for (int64_t i = threadIdx.x; i < count; i += kEntryThreads) entries[i] = value;
  // The next kernel may start early, when this block has left, and read entries before it waits for
  // this kernel to end. It must then see whole entries.
  __threadfence();
}

}  // namespace

void write_entries(LoraWeight* entries, int64_t count, const LoraWeight& value,
                   cudaStream_t stream) {
  write_entries_kernel<<<1, kEntryThreads, 0, stream>>>(entries, count, value);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
