#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "heddle/core/context.h"

namespace heddle {

/// Owns what calls on one CUDA stream need, on the device given: workspace, exchange memory, the
/// record of wrong indices, facts of the device.
///
/// One for each (device, stream) that runs calls at the same time as another: a context belongs to
/// one call at a time on the host, and on the device its calls are ordered by the stream. A
/// captured graph keeps using the context's memory, so the context must outlive it, and neither
/// calls on the context's stream nor another graph captured with the same context may run at the
/// same time as the graph.
class CudaContext {
 public:
  /// Enough for the rank vectors of 256 rows at a site of three slices of rank 64 and 14,336
  /// features; a call that needs more takes one launch more.
  static constexpr size_t kExchangeBytes = size_t{16} << 20;

  /// Allocates; may be called while a graph is captured, on this stream too, and records nothing.
  /// Throws kInvalidArgument for a device that is not there, kUnsupported in a build without CUDA
  /// and for a device that is no CUDA device or too old for the kernels, kOutOfMemory.
  CudaContext(Device device, cudaStream_t stream, size_t workspace_bytes,
              size_t exchange_bytes = kExchangeBytes);
  /// Waits for the work of the device.
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// For calls, as long as this object lives. The calling thread's current device must be the
  /// context's: see ScopedDevice.
  [[nodiscard]] const ExecContext& exec() const;

  [[nodiscard]] size_t workspace_bytes() const;
  /// Makes the workspace at least as large. The smaller one is kept as long as this object lives:
  /// graphs may use it.
  void reserve_workspace(size_t bytes);

  /// Waits for the stream, then throws kInvalidArgument with the text of the first fault that
  /// kernels met since the last one was reported; see Fault. While the stream is captured there is
  /// nothing to wait for: it reports what calls before the capture left. Of a graph that replays on
  /// another stream, wait for that one first.
  void check();
  /// The same fault without waiting for anything: nothing where there is none yet. Told once.
  [[nodiscard]] std::optional<Fault> poll();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes a CUDA device the current one of this thread, and back at the end of its scope. Does
/// nothing for the CPU.
class ScopedDevice {
 public:
  explicit ScopedDevice(Device device);
  ~ScopedDevice();
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

 private:
  int previous_ = -1;  // -1: nothing to go back to
};

}  // namespace heddle
