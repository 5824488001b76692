#pragma once

#include <optional>

#include "heddle/core/context.h"
#include "heddle/core/cuda_context.h"
#include "heddle/core/thread_pool.h"

#include "core/device_bytes.h"
#include "core/device_stream.h"

namespace heddle {

/// Owns what the engine's calls need on its device: threads and workspace, and on a GPU streams and
/// the record of faults that kernels report. The one place that knows how the context of a device
/// is made; everything else allocates on `exec().device`.
class EngineContext {
 public:
  EngineContext(Device device, int num_threads)
      : threads_(num_threads),
        steps_(make_stream(device)),
        loads_(make_stream(device)),
        moves_(make_stream(device)),
        exec_{.device = device,
              .info = query_device(device),
              .workspace = &workspace_,
              .threads = &threads_} {
    if (device.type == DeviceType::kCpu) return;
    cuda_.emplace(device, steps_.get(), 0);
    exec_ = cuda_->exec();
    exec_.threads = &threads_;
  }
  EngineContext(const EngineContext&) = delete;
  EngineContext& operator=(const EngineContext&) = delete;

  /// For steps. The device must be the calling thread's, see ScopedDevice.
  [[nodiscard]] const ExecContext& exec() const { return exec_; }
  /// For what runs concurrently with steps, in any thread: without threads and workspace, on a GPU
  /// on another stream.
  [[nodiscard]] ExecContext loading() const {
    return {.device = exec_.device, .info = exec_.info, .stream = loads_.get()};
  }

  /// For copies to the device that overlap with steps, on a stream of their own.
  [[nodiscard]] ExecContext moving() const {
    return {.device = exec_.device, .info = exec_.info, .stream = moves_.get()};
  }

  /// Makes the workspace at least as large.
  void reserve_workspace(size_t bytes) {
    if (cuda_) return cuda_->reserve_workspace(bytes);
    if (bytes <= workspace_bytes_) return;
    memory_ = allocate_zeroed(exec_.device, bytes);
    workspace_bytes_ = bytes;
    workspace_ = Workspace({memory_.get(), bytes});
  }

  /// On a GPU: throws a fault that kernels have reported since the last call.
  void check() {
    if (!cuda_) return;
    if (const std::optional<Fault> fault = cuda_->poll()) {
      throw_error(ErrorCode::kInvalidArgument, fault->text());
    }
  }

 private:
  ThreadPool threads_;
  DeviceStream steps_, loads_, moves_;
  DeviceBytes memory_;
  size_t workspace_bytes_ = 0;
  Workspace workspace_{{}};
  std::optional<CudaContext> cuda_;
  ExecContext exec_;
};

}  // namespace heddle
