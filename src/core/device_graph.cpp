#include "core/device_graph.h"

#include "heddle/config.h"
#include "heddle/core/error.h"

namespace heddle {

void FreeDeviceEvent::operator()(cudaEvent_t event) const noexcept {
  if constexpr (kWithCuda) cuda::free_event(event);
}

DeviceEvent::DeviceEvent([[maybe_unused]] Device device, [[maybe_unused]] bool is_timed) {
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) event_.reset(cuda::make_event(is_timed));
  }
}

void DeviceEvent::record([[maybe_unused]] const ExecContext& ctx) {
  if constexpr (kWithCuda) {
    if (event_) cuda::record_event(event_.get(), ctx.stream);
  }
}

void DeviceEvent::wait() const {
  if constexpr (kWithCuda) {
    if (event_) cuda::wait_for(event_.get());
  }
}

double DeviceEvent::seconds_since([[maybe_unused]] const DeviceEvent& earlier) const {
  if constexpr (kWithCuda) {
    if (event_) return cuda::seconds_between(earlier.event_.get(), event_.get());
  }
  return 0;
}

void FreeDeviceGraph::operator()(cudaGraphExec_t graph) const noexcept {
  if constexpr (kWithCuda) cuda::free_graph(graph);
}

DeviceGraph::DeviceGraph(const ExecContext& ctx, FunctionRef<void()> calls) {
  if constexpr (kWithCuda) {
    cuda::begin_capture(ctx.stream);
    try {
      calls();
    } catch (...) {  // so that the stream can be used for others
      static_cast<void>(cuda::end_capture(ctx.stream, false));
      throw;
    }
    graph_.reset(cuda::end_capture(ctx.stream, true));
  } else {
    throw_error(ErrorCode::kUnsupported, "a graph on ", ctx.device,
                ", this build is for the CPU alone");
  }
}

void DeviceGraph::launch([[maybe_unused]] const ExecContext& ctx) const {
  if constexpr (kWithCuda) cuda::launch_graph(graph_.get(), ctx.stream);
}

}  // namespace heddle
