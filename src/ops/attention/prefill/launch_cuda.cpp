#include "ops/attention/device/instances.h"
#include "ops/attention/prefill/launch.h"

namespace heddle::cuda::attention::prefill {
namespace {

template <class T, class More>
void launch_of(const PrefillParams& p, const More& more, int dim, int64_t num_blocks,
               const AttentionLaunch& launch) {
  with_head_dim<T>(
      dim, [&](auto constant) { launch_instance<T, constant>(p, more, num_blocks, launch); });
}

}  // namespace

template <class More>
void launch(const PrefillParams& p, const More& more, int dim, int64_t num_blocks,
            const AttentionLaunch& launch) {
  if (launch.dtype == DType::kFloat16) {
    return launch_of<half>(p, more, dim, num_blocks, launch);
  }
  launch_of<bfloat16>(p, more, dim, num_blocks, launch);
}
template void launch(const PrefillParams& p, const NoRotation& rotation, int dim,
                     int64_t num_blocks, const AttentionLaunch& launch);
template void launch(const PrefillParams& p, const RotaryFrequencies& rotation, int dim,
                     int64_t num_blocks, const AttentionLaunch& launch);
template void launch(const PrefillParams& p, const KvScaleParams& scales, int dim,
                     int64_t num_blocks, const AttentionLaunch& launch);

template <class Params>
void launch_sm90(const Params& p, int dim, const AttentionLaunch& launch) {
  const auto launch_of = [&]<class T>(T) {
    with_head_dim<T>(dim, [&](auto constant) {
      if constexpr (constant <= 128) launch_sm90_instance<T, constant>(p, launch);
    });
  };
  launch.dtype == DType::kFloat16 ? launch_of(half{}) : launch_of(bfloat16{});
}
template void launch_sm90(const PrefillSm90Params& p, int dim, const AttentionLaunch& launch);
template void launch_sm90(const CodePrefillSm90Params& p, int dim, const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention::prefill
