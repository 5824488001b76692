#include "ops/lora_device/grouped/shrink_kernel_cuda.h"

namespace heddle::cuda::lora {
namespace {

template <class T>
void launch_instance(const GroupedParams& p, const GroupedLaunch& launch) {
  using namespace grouped_shrink;
  launch.config.shrink_tiles == 1 ? run<GeneralForm, T, 1, true>(p, launch)
                                  : run<GeneralForm, T, 2, true>(p, launch);
}

}  // namespace

template <>
void launch_grouped_shrink_general<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_instance<__nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_shrink_general<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_instance<__half>(p, launch);
}

}  // namespace heddle::cuda::lora
