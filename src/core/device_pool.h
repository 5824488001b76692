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

/// Stream-ordered GPU memory: allocated on one stream, freed on another, without synchronisation.
/// On the CPU it is ordinary memory.
class DevicePool {
 public:
  /// It keeps what is given back for those who ask next.
  explicit DevicePool(Device device);

  /// Memory for what ctx.stream runs from here on. When the result is destroyed, it is freed
  /// after all that was launched on `last` by then; the pool and that stream outlive it. To reuse
  /// what was freed on `last` in place of new memory, ctx.stream must be held until then
  /// (DeviceEvent::hold). It holds anything.
  [[nodiscard]] DeviceBytes allocate(const ExecContext& ctx, cudaStream_t last, size_t bytes) const;

 private:
  std::unique_ptr<CUmemPoolHandle_st, FreeDevicePool> pool_;
};

}  // namespace heddle
