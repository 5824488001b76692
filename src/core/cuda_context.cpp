#include "heddle/core/cuda_context.h"

#include <vector>

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "core/cuda_device.h"
#include "core/device_bytes.h"

namespace heddle {
namespace {

/// Facts of a device that kernels run on.
DeviceInfo checked_device_info(Device device) {
  if (device.type != DeviceType::kCuda) {
    throw_error(ErrorCode::kUnsupported, "device is ", device, ", expected a CUDA device");
  }
  const DeviceInfo info = query_device(device);
  if (info.compute_capability < kMinComputeCapability) {
    throw_error(ErrorCode::kUnsupported, "device ", device, " has compute capability ",
                info.compute_capability / 10, ".", info.compute_capability % 10,
                ", kernels need at least ", kMinComputeCapability / 10, ".",
                kMinComputeCapability % 10);
  }
  return info;
}

struct FreeFaultRecord {
  void operator()(FaultRecord* record) const noexcept {
    if constexpr (kWithCuda) cuda::free_fault_record(record);
  }
};

}  // namespace

struct CudaContext::State {
  DeviceBytes exchange;
  std::unique_ptr<FaultRecord, FreeFaultRecord> faults;
  std::vector<DeviceBytes> workspaces;  // the last one is in use
  size_t workspace_bytes = 0;
  Workspace workspace{{}};
  ExecContext exec;
};

CudaContext::CudaContext(Device device, cudaStream_t stream, size_t workspace_bytes,
                         size_t exchange_bytes) {
  const DeviceInfo info = checked_device_info(device);
  state_ = std::make_unique<State>();
  state_->exchange = allocate_zeroed(device, exchange_bytes);
  if constexpr (kWithCuda) state_->faults.reset(cuda::make_fault_record(device.index));
  state_->exec = {.device = device,
                  .info = info,
                  .stream = stream,
                  .workspace = &state_->workspace,
                  .exchange = {state_->exchange.get(), exchange_bytes},
                  .faults = state_->faults.get()};
  reserve_workspace(workspace_bytes);
}

CudaContext::~CudaContext() = default;

const ExecContext& CudaContext::exec() const { return state_->exec; }

size_t CudaContext::workspace_bytes() const { return state_->workspace_bytes; }

void CudaContext::reserve_workspace(size_t bytes) {
  if (bytes <= state_->workspace_bytes) return;
  state_->workspaces.push_back(allocate_zeroed(state_->exec.device, bytes));
  state_->workspace_bytes = bytes;
  state_->workspace = Workspace({state_->workspaces.back().get(), bytes});
}

void CudaContext::check() {
  if constexpr (kWithCuda) {
    const ScopedDevice on_device(state_->exec.device);
    cuda::wait_for(state_->exec.stream);
  }
  if (const std::optional<Fault> fault = poll()) {
    throw_error(ErrorCode::kInvalidArgument, fault->text());
  }
}

std::optional<Fault> CudaContext::poll() {
  if constexpr (kWithCuda) return cuda::take_fault(*state_->faults);
  return std::nullopt;
}

ScopedDevice::ScopedDevice(Device device) {
  if (device.type != DeviceType::kCuda) return;
  if constexpr (kWithCuda) {
    const int current = cuda::current_device();
    if (current == device.index) return;
    cuda::set_current_device(device.index);
    previous_ = current;
  }
}

ScopedDevice::~ScopedDevice() {
  if constexpr (kWithCuda) {
    if (previous_ >= 0) cuda::restore_current_device(previous_);
  }
}

}  // namespace heddle
