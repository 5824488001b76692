#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "heddle/core/context.h"
#include "heddle/core/cuda_context.h"

namespace heddle::python {

/// What the calls of one CPU context share: threads that stay, and a workspace that only grows.
struct CpuContext;

/// The devices that an operation has kernels for.
enum class Kernels : uint8_t { kCpu, kCpuAndCuda };

/// The context of one call, taken from those that are kept and given back at the end. On the CPU
/// there are as many as threads ever called at once, so callers do not wait for one another; on a
/// GPU there is one for each (device, stream), and the device is the thread's current one
/// meanwhile. The first call on a stream makes its context, also within a capture.
class ContextLease {
 public:
  /// An operation with CPU kernels alone gets a bare context on a GPU: it refuses that itself,
  /// naming operation and device.
  ContextLease(Device device, void* stream, size_t workspace_bytes, Kernels kernels);
  ~ContextLease();
  ContextLease(const ContextLease&) = delete;
  ContextLease& operator=(const ContextLease&) = delete;

  [[nodiscard]] const ExecContext& context() const { return context_; }

 private:
  ExecContext context_;
  std::unique_ptr<CpuContext> cpu_;
  std::unique_lock<std::mutex> gpu_in_use_;
  std::optional<ScopedDevice> on_device_;
};

/// CudaContext::check() and poll() of the context that calls on (device, stream) have. Nothing
/// where there was no call yet, and on the CPU.
void check_faults(Device device, void* stream);
[[nodiscard]] std::optional<Fault> poll_faults(Device device, void* stream);

/// Threads of a CPU context, the caller's included: set_num_threads, else HEDDLE_NUM_THREADS, else
/// the processors that this process may use.
[[nodiscard]] int num_threads();
/// Contexts in use keep their threads until they are given back.
void set_num_threads(int n);

}  // namespace heddle::python
