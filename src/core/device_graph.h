#pragma once

#include <memory>

#include "heddle/core/context.h"

#include "core/cuda_device.h"

namespace heddle {

struct FreeDeviceEvent {
  void operator()(cudaEvent_t event) const noexcept;
};

/// A mark on a stream, for the host to wait until the device has come there. On the CPU nothing is
/// ever waited for. The device must be the calling thread's.
class DeviceEvent {
 public:
  explicit DeviceEvent(Device device) : DeviceEvent(device, false) {}
  /// One that seconds_since may be asked of.
  [[nodiscard]] static DeviceEvent timed(Device device) { return {device, true}; }
  /// Records the event after all that was launched on ctx.stream.
  void record(const ExecContext& ctx);
  /// Waits for the last mark; at once where there was none.
  void wait() const;
  /// Whether the device has come to it.
  [[nodiscard]] bool has_passed() const;
  /// What is asked of ctx.stream from here on waits on the device for the mark of another stream.
  void hold(const ExecContext& ctx) const;
  /// Time of the device between two marks that it has come to; 0 on the CPU.
  [[nodiscard]] double seconds_since(const DeviceEvent& earlier) const;

 private:
  DeviceEvent(Device device, bool is_timed);

  std::unique_ptr<CUevent_st, FreeDeviceEvent> event_;
};

struct FreeDeviceGraph {
  void operator()(cudaGraphExec_t graph) const noexcept;
};

/// Calls of a CUDA context that were recorded to be asked for again at once: with the same
/// addresses and whatever these hold then.
class DeviceGraph {
 public:
  /// Records what `calls` asks of ctx.stream, without running it. Throws what `calls` throws.
  DeviceGraph(const ExecContext& ctx, FunctionRef<void()> calls);
  void launch(const ExecContext& ctx) const;

 private:
  std::unique_ptr<CUgraphExec_st, FreeDeviceGraph> graph_;
};

}  // namespace heddle
