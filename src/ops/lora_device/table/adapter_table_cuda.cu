#include <algorithm>

#include "cuda/check.h"

#include "ops/lora_device/table/adapter_table_kernels.h"

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

// Changes that fit the 4 KiB of a launch's arguments.
constexpr size_t kMaxChanges = 100;
struct Changes {
  LoraEntryChange each[kMaxChanges];
};

// Each of the first `count` changes by one thread. They are arguments of the launch, as above.
__global__ void __launch_bounds__(kEntryThreads)
    change_entries_kernel(const __grid_constant__ Changes changes, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) *changes.each[i].entry = changes.each[i].value;
  __threadfence();  // as above
}
static_assert(kMaxChanges <= kEntryThreads);

}  // namespace

void change_entries(std::span<const LoraEntryChange> changes, cudaStream_t stream) {
  while (!changes.empty()) {
    const size_t count = std::min(changes.size(), kMaxChanges);
    Changes some{};
    std::copy_n(changes.begin(), count, some.each);
    change_entries_kernel<<<1, kEntryThreads, 0, stream>>>(some, static_cast<int>(count));
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    changes = changes.subspan(count);
  }
}

void write_entries(LoraWeight* entries, int64_t count, const LoraWeight& value,
                   cudaStream_t stream) {
  write_entries_kernel<<<1, kEntryThreads, 0, stream>>>(entries, count, value);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
