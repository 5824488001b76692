#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/cuda_device.h"
#include "core/device_bytes.h"

namespace heddle {

struct FreeDevicePool {
  void operator()(cudaMemPool_t pool) const noexcept;
};

/// Memory of a GPU that is taken on one stream and given back on another one, and nobody waits. On
/// the CPU it is ordinary memory.
class DevicePool {
 public:
  /// It keeps what is given back for those who ask next.
  explicit DevicePool(Device device);

  /// Memory for what ctx.stream runs from here on. When the result goes away, it is given back
  /// behind all that was asked of `last` by then; the pool and that stream outlive it. To take what
  /// was given back on `last` in place of new memory, ctx.stream must be held until then
  /// (DeviceEvent::hold). It holds anything.
  [[nodiscard]] DeviceBytes allocate(const ExecContext& ctx, cudaStream_t last, size_t bytes) const;

 private:
  std::unique_ptr<CUmemPoolHandle_st, FreeDevicePool> pool_;
};

}  // namespace heddle
