#include "core/device_pool.h"

#include "heddle/config.h"

namespace heddle {

void FreeDevicePool::operator()([[maybe_unused]] cudaMemPool_t pool) const noexcept {
  if constexpr (kWithCuda) cuda::free_pool(pool);
}

DevicePool::DevicePool([[maybe_unused]] Device device) {
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) pool_.reset(cuda::make_pool(device.index));
  }
}

DeviceBytes DevicePool::allocate(const ExecContext& ctx, [[maybe_unused]] cudaStream_t last,
                                 size_t bytes) const {
  if constexpr (kWithCuda) {
    if (pool_) {
      return {cuda::allocate_from(pool_.get(), bytes, ctx.stream),
              {.type = ctx.device.type, .bytes = bytes, .stream = last}};
    }
  }
  return allocate_zeroed(ctx.device, bytes);
}

}  // namespace heddle
