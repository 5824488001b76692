#include "ops/attention/device/instances.h"
#include "ops/attention/prefill/launch.h"

namespace heddle::cuda::attention::prefill {
namespace {

template <class T, class Rotation>
void launch_of(const PrefillParams& p, const Rotation& rotation, int dim, int64_t num_blocks,
               const AttentionLaunch& launch) {
  with_head_dim<T>(
      dim, [&](auto constant) { launch_instance<T, constant>(p, rotation, num_blocks, launch); });
}

}  // namespace

template <class Rotation>
void launch(const PrefillParams& p, const Rotation& rotation, int dim, int64_t num_blocks,
            const AttentionLaunch& launch) {
  if (launch.dtype == DType::kFloat16) {
    return launch_of<half>(p, rotation, dim, num_blocks, launch);
  }
  launch_of<bfloat16>(p, rotation, dim, num_blocks, launch);
}
template void launch(const PrefillParams& p, const NoRotation& rotation, int dim,
                     int64_t num_blocks, const AttentionLaunch& launch);
template void launch(const PrefillParams& p, const RotaryFrequencies& rotation, int dim,
                     int64_t num_blocks, const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention::prefill
