#pragma once

#include "heddle/core/context.h"
#include "heddle/core/thread_pool.h"

#include "core/device_bytes.h"

namespace heddle {

/// Owns what the engine's calls need on its device: threads and workspace. The one place that knows
/// how the context of a device is made; everything else asks `exec().device` for memory.
class EngineContext {
 public:
  EngineContext(Device device, int num_threads)
      : threads_(num_threads),
        exec_{.device = device,
              .info = query_device(device),
              .workspace = &workspace_,
              .threads = &threads_} {}
  EngineContext(const EngineContext&) = delete;
  EngineContext& operator=(const EngineContext&) = delete;

  [[nodiscard]] const ExecContext& exec() const { return exec_; }

  /// Makes the workspace at least as large.
  void reserve_workspace(size_t bytes) {
    if (bytes <= workspace_bytes_) return;
    memory_ = allocate_zeroed(exec_.device, bytes);
    workspace_bytes_ = bytes;
    workspace_ = Workspace({memory_.get(), bytes});
  }

 private:
  ThreadPool threads_;
  DeviceBytes memory_;
  size_t workspace_bytes_ = 0;
  Workspace workspace_{{}};
  ExecContext exec_;
};

}  // namespace heddle
