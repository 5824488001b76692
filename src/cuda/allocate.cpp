#include <atomic>
#include <cstring>
#include <limits>
#include <new>

#include "cuda/check.h"
#include "cuda/copies/host_copies.h"
#include "cuda/fault.h"

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

#include "core/cuda_device.h"

namespace heddle::cuda {
namespace {

/// While it lives, this thread may allocate although a graph is captured: by default the runtime
/// refuses that and gives up the capture, whichever thread makes it.
class CaptureUndisturbed {
 public:
  CaptureUndisturbed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~CaptureUndisturbed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureUndisturbed(const CaptureUndisturbed&) = delete;
  CaptureUndisturbed& operator=(const CaptureUndisturbed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A stream of its own, that no capture and no other work is on.
class PrivateStream {
 public:
  explicit PrivateStream(int index) : stream_(make_stream(index)) {}
  ~PrivateStream() { cudaStreamDestroy(stream_); }
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

}  // namespace

int current_device() {
  int index = 0;
  HEDDLE_CUDA_CHECK(cudaGetDevice(&index));
  return index;
}

void set_current_device(int index) { HEDDLE_CUDA_CHECK(cudaSetDevice(index)); }

void restore_current_device(int index) noexcept {
  if (cudaSetDevice(index) != cudaSuccess) cudaGetLastError();
}

std::byte* allocate_zeroed(int index, size_t bytes) {
  if (bytes == 0) return nullptr;
  const ScopedDevice on_device({DeviceType::kCuda, index});
  const CaptureUndisturbed undisturbed;
  const PrivateStream stream(index);
  void* memory = nullptr;
  const cudaError_t made = cudaMalloc(&memory, bytes);
  if (made == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_error(ErrorCode::kOutOfMemory, "cannot get ", bytes, " bytes of memory on ",
                Device{DeviceType::kCuda, index}, ", of which ", available_bytes(index),
                " are free");
  }
  HEDDLE_CUDA_CHECK(made);
  try {
    HEDDLE_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream.get()));
    HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  } catch (...) {
    free_memory(static_cast<std::byte*>(memory));
    throw;
  }
  return static_cast<std::byte*>(memory);
}

void free_memory(std::byte* memory) noexcept {
  if (memory == nullptr) return;
  const CaptureUndisturbed undisturbed;
  if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
}

cudaMemPool_t make_pool(int index) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = index;
  cudaMemPool_t pool = nullptr;
  HEDDLE_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties));
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  const cudaError_t kept = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
  if (kept != cudaSuccess) free_pool(pool);
  HEDDLE_CUDA_CHECK(kept);
  return pool;
}

void free_pool(cudaMemPool_t pool) noexcept {
  if (pool != nullptr && cudaMemPoolDestroy(pool) != cudaSuccess) cudaGetLastError();
}

std::byte* allocate_from(cudaMemPool_t pool, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  HEDDLE_CUDA_CHECK(cudaMallocFromPoolAsync(&memory, bytes, pool, stream));
  return static_cast<std::byte*>(memory);
}

void free_in_order(std::byte* memory, cudaStream_t stream) noexcept {
  if (memory != nullptr && cudaFreeAsync(memory, stream) != cudaSuccess) cudaGetLastError();
}

int64_t available_bytes(int index) {
  const ScopedDevice on_device({DeviceType::kCuda, index});
  size_t free = 0, total = 0;
  HEDDLE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

cudaStream_t make_stream(int index) {
  const ScopedDevice on_device({DeviceType::kCuda, index});
  cudaStream_t stream = nullptr;
  HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void free_stream(cudaStream_t stream) noexcept {
  if (stream == nullptr) return;
  if (cudaStreamSynchronize(stream) != cudaSuccess) cudaGetLastError();
  if (cudaStreamDestroy(stream) != cudaSuccess) cudaGetLastError();
}

std::byte* allocate_pinned(size_t bytes) {
  if (bytes == 0) return nullptr;
  const CaptureUndisturbed undisturbed;
  void* memory = nullptr;
  HEDDLE_CUDA_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

void free_pinned(std::byte* memory) noexcept {
  if (memory == nullptr) return;
  const CaptureUndisturbed undisturbed;
  if (cudaFreeHost(memory) != cudaSuccess) cudaGetLastError();
}

void pin(std::span<std::byte> memory) {
  const CaptureUndisturbed undisturbed;
  const cudaError_t pinned =
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
  if (pinned == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_error(ErrorCode::kOutOfMemory, "cannot page-lock ", memory.size(), " bytes of the host");
  }
  HEDDLE_CUDA_CHECK(pinned);
}

void unpin(std::byte* memory) noexcept {
  const CaptureUndisturbed undisturbed;
  if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
}

void begin_copy_from_host(std::byte* to, std::span<const std::byte> from, cudaStream_t stream) {
  HEDDLE_CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream));
}

void begin_copy_to_host(std::span<std::byte> to, const std::byte* from, cudaStream_t stream) {
  HEDDLE_CUDA_CHECK(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream));
}

void begin_copy_within(std::byte* to, std::span<const std::byte> from, cudaStream_t stream) {
  HEDDLE_CUDA_CHECK(
      cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDeviceToDevice, stream));
}

void copy_from_host(std::byte* to, std::span<const std::byte> from, cudaStream_t stream) {
  begin_copy_from_host(to, from, stream);
  HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

void copy_to_host(std::span<std::byte> to, const std::byte* from, cudaStream_t stream) {
  begin_copy_to_host(to, from, stream);
  HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

FaultRecord* make_fault_record(int index) {
  const ScopedDevice on_device({DeviceType::kCuda, index});
  const CaptureUndisturbed undisturbed;
  void* memory = nullptr;
  // On all systems with 64 bits, host and device know it by one address.
  HEDDLE_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(FaultRecord), cudaHostAllocMapped));
  auto* const record = new (memory) FaultRecord;
  try {
    record->claimed = reinterpret_cast<uint32_t*>(allocate_zeroed(index, sizeof(uint32_t)));
  } catch (...) {
    free_fault_record(record);
    throw;
  }
  return record;
}

void free_fault_record(FaultRecord* record) noexcept {
  if (record == nullptr) return;
  const CaptureUndisturbed undisturbed;
  free_memory(reinterpret_cast<std::byte*>(record->claimed));  // waits for those who write
  if (cudaFreeHost(record) != cudaSuccess) cudaGetLastError();
}

std::optional<Fault> take_fault(FaultRecord& record) {
  const uint32_t written = std::atomic_ref(record.written).load(std::memory_order_acquire);
  if (written == record.told) return std::nullopt;
  const Fault fault{record.op, record.array, record.row, record.value};
  std::atomic_ref(record.told).store(written, std::memory_order_release);
  return fault;
}

void wait_for(cudaStream_t stream) {
  if (is_captured(stream)) return;
  HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

}  // namespace heddle::cuda
